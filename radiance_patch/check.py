"""Says whether the patch would hold on a release that is not installed: a verdict on each hunk, and why."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath

from packaging.version import Version

from radiance_patch import explain, locate, registry, rewrite
from radiance_patch.errors import Exit, FetchError
from radiance_patch.hunk import Hunk, Where
from radiance_patch.locate import LocateError
from radiance_patch.release import Release
from radiance_patch.rewrite import Verdict

# Gives a proved release to compare with, of a distribution where that has it; raises FetchError.
Reference = Callable[[str, Version], Release]

# How many files of a lost file's name are searched for its functions.
LOOK_INTO = 3


@dataclass(frozen=True)
class Row:
    """The verdict on one hunk.

    state: same, needs-review, drifted, moved, missing-file or upstreamed. line: 1-based, in
    the release's own file. diff: what explains it, empty for `same`.
    """

    id: str
    file: str
    state: str
    detail: str
    line: int | None
    diff: str


@dataclass(frozen=True)
class Checked:
    """The verdict on a release. exit: 0 only if `apply` would put every hunk in. fetched: bytes."""

    release: Release
    rows: list[Row]
    exit: Exit
    summary: str
    next_step: str
    fetched: int


def files(hunks: list[Hunk]) -> list[str]:
    """Name the files a check reads, by their path in a wheel."""
    return sorted({f"vllm/{hunk.file}" for hunk in hunks})


def check(release: Release, hunks: list[Hunk], reference: Reference, fetched: Callable[[], int]) -> Checked:
    """Judge every hunk that concerns a release; fetched: says how many bytes that took, once it is done.

    Raises FetchError when a file cannot be read, and when the release is patched already.
    """
    rows: list[Row] = []
    fits = True
    for hunk in hunks:
        verdict = _verdict(release, hunk)
        fits = fits and verdict.state not in rewrite.REFUSED
        state = "same" if verdict.state == "pristine" or (verdict.insertion and not verdict.changed) else verdict.state
        detail, diff = verdict.detail if state != "same" else "", verdict.diff
        if verdict.changed:
            detail, diff = _difference(release, verdict, reference)
        rows.append(Row(hunk.id, hunk.file, state, detail, explain.first_line(diff) or verdict.line, diff))
    code, summary, next_step = _summed_up(release, hunks, rows, fits=fits)
    return Checked(release, rows, code, summary, next_step, fetched())


def _summed_up(release: Release, hunks: list[Hunk], rows: list[Row], *, fits: bool) -> tuple[Exit, str, str]:
    near = registry.nearest(release.public, registry.supported(hunks))
    stay = f"pip install {release.distribution}=={near[0]}   (the nearest supported release)"
    odd = [row for row in rows if row.state not in ("same", "upstreamed")]
    if fits:
        return Exit.OK, f"{release}: all {len(rows)} hunks would apply", "radiance-patch apply"
    if odd:
        summary = f"{release}: {len(odd)} of {len(rows)} hunks do not fit as reviewed; apply would write nothing"
        return Exit.DRIFTED, summary, stay
    summary = f"{release}: every hunk finds the code it was proved on, but nobody has proved it on this release yet"
    return Exit.DRIFTED, summary, f"radiance-patch apply --accept-unreviewed, or: {stay}"


def _verdict(release: Release, hunk: Hunk) -> Verdict:
    data = release.source(hunk.file)
    if data is None:
        return _elsewhere(release, hunk)
    if rewrite.SENTINEL.encode() in data:
        raise FetchError(
            "This vLLM is patched; only the original says whether the patch would hold.",
            where=f"{release.origin}: vllm/{hunk.file}",
            next_step="radiance-patch status",
        )
    try:
        source = locate.parse(data)
    except LocateError as error:
        return Verdict(hunk, "drifted", f"{hunk.file} {error.reason}", error.line)
    return rewrite.judge(hunk, release.public, source)


def _elsewhere(release: Release, hunk: Hunk) -> Verdict:
    """Look for a file that is gone: one of its name, elsewhere in the package, in which the anchor stands."""
    name = PurePosixPath(hunk.file).name
    same = [path for path in release.files.names() if path.startswith("vllm/") and PurePosixPath(path).name == name]
    anchor = registry.closest(hunk, release.public).anchor
    for path in difflib.get_close_matches(f"vllm/{hunk.file}", same, LOOK_INTO, 0.0):
        try:
            place = locate.find(locate.parse(release.files.read(path) or b""), anchor, Where.BEFORE)
        except LocateError:
            continue
        detail = f"{hunk.file} is gone; {anchor.scope} stands in {path.removeprefix('vllm/')} (line {place.line})"
        return Verdict(hunk, "moved", detail)
    return Verdict(hunk, "missing-file", f"this release has no {hunk.file}")


def _difference(release: Release, verdict: Verdict, reference: Reference) -> tuple[str, str]:
    """Show what changed in a function since the nearest release proved on this form, or why that is not shown.

    Another form's release may have another function, in another file. Returns detail and diff.
    """
    assert verdict.insertion is not None
    variant = verdict.insertion[1]
    scope, proved = variant.anchor.scope, variant.releases - {release.public}
    if not proved:
        return f"{scope} is new to this hunk: no other release was proved on this form", ""
    near = registry.nearest(release.public, sorted(proved), 1)[0]
    detail = f"{scope} has changed since {near}"
    try:
        old = reference(release.distribution, near)
        sources = [locate.parse(each.source(verdict.hunk.file) or b"") for each in (old, release)]
        names = (f"{old}/{verdict.hunk.file}", f"{release}/{verdict.hunk.file}")
        return detail, explain.function(sources[0], sources[1], scope, names)
    except (FetchError, LocateError) as error:
        return f"{detail}, which cannot be compared: {error}", ""
