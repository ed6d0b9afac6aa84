"""Says which state an installation is in, by hashes alone; nothing is written."""

from __future__ import annotations

from dataclasses import dataclass, field

from radiance_patch import commit, explain, image, plan, record, registry, rewrite, state
from radiance_patch.errors import Exit, PatchError
from radiance_patch.hunk import Hunk
from radiance_patch.image import Image
from radiance_patch.plan import PAYLOAD
from radiance_patch.state import State
from radiance_patch.target import Target


@dataclass(frozen=True)
class HunkStatus:
    """The state of one hunk: applied, outdated, pristine, needs-review, drifted, upstreamed, missing-file, tampered."""

    id: str
    file: str
    state: str
    detail: str = ""
    line: int | None = None


@dataclass(frozen=True)
class Status:
    """What an installation is in: `exit` is the answer, `summary` says it, `problems` say why not 0."""

    exit: Exit
    summary: str
    hunks: list[HunkStatus]
    problems: list[str] = field(default_factory=list)
    next_step: str | None = None


def inspect(target: Target, hunks: list[Hunk]) -> Status:
    """Look at an installation. Raises InconsistentError when the record of the patch is unreadable."""
    hunks = registry.at(hunks, target.public)
    if commit.unfinished(target):
        return Status(
            Exit.INCONSISTENT,
            "an apply or revert was cut off",
            [HunkStatus(hunk.id, hunk.file, "tampered", "unfinished") for hunk in hunks],
            [f"{target.dist_info / commit.JOURNAL} is still there"],
            "radiance-patch revert   (takes it back; apply does too, and goes on)",
        )
    old = state.load(target)
    return _patched(target, hunks, old) if old else _unpatched(target, hunks)


def _unpatched(target: Target, hunks: list[Hunk]) -> Status:
    rows = record.rows((target.dist_info / "RECORD").read_bytes())
    bad: dict[str, tuple[str, str]] = {}  # the state of a file and, where it is a problem, what it is
    for file in sorted({hunk.file for hunk in hunks}):
        found = image.read(target.package / file)
        name = f"vllm/{file}"
        if not target.holds(target.package / file):
            folder = (target.package / file).parent
            bad[file] = ("tampered", f"{folder} is a link to another place, {folder.resolve()}")
        elif found is None:
            bad[file] = ("missing-file", f"{target.package / file} is missing" if name in rows else "")
        elif rewrite.SENTINEL.encode() in found.data:
            bad[file] = ("tampered", f"{target.package / file} is patched, and no apply recorded it")
        elif name not in rows or not record.matches(rows[name], found.data):
            bad[file] = ("tampered", f"{target.package / file} is not the file that RECORD lists")
    folder = target.site / PAYLOAD
    strange = [f"{folder} is there though no apply recorded it"] if any(folder.glob("*.py")) else []
    found_states = [HunkStatus(hunk.id, hunk.file, *bad.get(hunk.file, ("pristine", ""))) for hunk in hunks]
    problems = [problem for _, problem in bad.values() if problem] + strange
    if problems:
        return Status(
            Exit.INCONSISTENT,
            "not applied, and edited by someone else",
            found_states,
            problems,
            state.reinstall(target),
        )
    releases = registry.supported(hunks)
    if bad or not all(hunk.variant_for(target.public) for hunk in hunks):
        near = registry.nearest(target.public, releases)
        return Status(
            Exit.DRIFTED,
            f"not applied: vLLM {target.version} is not supported, the nearest are {', '.join(map(str, near))}",
            found_states,
            next_step="radiance-patch apply --check   (says which hunks fit)",
        )
    return Status(Exit.NOT_APPLIED, "not applied", found_states, next_step="radiance-patch apply")


def _patched(target: Target, hunks: list[Hunk], old: State) -> Status:
    problems, bad_files = _compare(target, old)
    known = {hunk.id: hunk for hunk in hunks}
    asked = set(old.asked if old.asked is not None else known)
    found = [_hunk_status(target, hunk, old, bad_files, asked) for hunk in hunks]
    if problems:
        return Status(
            Exit.INCONSISTENT,
            "the files are not what apply wrote",
            found,
            problems,
            f"radiance-patch apply   (mends what is only missing), else: {state.reinstall(target)}",
        )
    stale = [entry.id for entry in found if entry.state == "outdated"] + [
        name for name in old.hunks if name not in known
    ]
    if stale:
        return Status(
            Exit.NOT_APPLIED,
            f"a patch of radiance-patch {old.tool} is in place, not this one's",
            found,
            [f"differs: {', '.join(stale)}"],
            "radiance-patch apply   (upgrades it from the saved originals)",
        )
    part = f", {len(old.hunks)} of {len(hunks)} hunks (--only)" if old.asked is not None else ""
    unreviewed = f", {len(old.unreviewed)} accepted unreviewed" if old.unreviewed else ""
    return Status(Exit.OK, f"applied{part}{unreviewed}", found)


def _hunk_status(target: Target, hunk: Hunk, old: State, bad_files: set[str], asked: set[str]) -> HunkStatus:
    if f"vllm/{hunk.file}" in bad_files:
        return HunkStatus(hunk.id, hunk.file, "tampered")
    placed = old.hunks.get(hunk.id)
    if placed is None:
        if hunk.id not in asked:
            return HunkStatus(hunk.id, hunk.file, "pristine", "not among --only")
        upstreamed = hunk.upstreamed_since is not None
        return HunkStatus(hunk.id, hunk.file, "upstreamed" if upstreamed else "outdated")
    variants = hunk.variants
    current = any(registry.digest(hunk, variant.edit) == placed for variant in variants)
    note = "accepted unreviewed" if hunk.id in old.unreviewed else ""
    return HunkStatus(hunk.id, hunk.file, "applied" if current else "outdated", note)


def _compare(target: Target, old: State) -> tuple[list[str], set[str]]:
    """Compare every file, the cached bytecode and the RECORD rows with the recorded apply."""
    problems: list[str] = []
    bad: set[str] = set()
    rows = record.rows((target.dist_info / "RECORD").read_bytes())
    for name, entry in old.files.items():
        path = target.site / name
        found = image.read(path)
        sha = found.sha256 if found else None
        original = entry.before["sha256"] if entry.before else None
        if name.endswith(".pyc"):
            if sha == original:
                problems.append(f"{path} is bytecode of the unpatched file, and would run instead")
        elif sha != entry.after:
            how = "is missing" if found is None else "is unpatched" if sha == original else "was edited after apply"
            line = _edited_line(target, old, name, found) if how == "was edited after apply" else None
            problems.append(f"{path}:{line} {how}" if line else f"{path} {how}")
            bad.add(name)
        elif found and (name not in rows or not record.matches(rows[name], found.data)):
            problems.append(f"RECORD does not list {path} as it is")
    problems += [f"{path} is in the payload folder, and not ours" for path in _unknown_payload(target, old)]
    for sha in sorted({entry.before["sha256"] for entry in old.files.values() if entry.before}):
        saved = image.read(state.original_path(target, sha))
        if saved is None or saved.sha256 != sha:
            problems.append(f"{state.original_path(target, sha)}, a saved original, is missing or was changed")
    return problems, bad


def _edited_line(target: Target, old: State, name: str, found: Image | None) -> int | None:
    """Return the first line that is not as apply wrote it, if what it wrote can be made once more."""
    try:
        wanted = plan.rebuilt(target, old, name)
    except PatchError:  # the saved original is gone too, which is said by itself
        return None
    if wanted is None or found is None:
        return None
    return explain.first_line(explain.file(wanted, found.data, ("", "")))


def _unknown_payload(target: Target, old: State) -> list[str]:
    folder = target.site / PAYLOAD
    return [
        str(path) for path in sorted(folder.glob("*.py")) if path.relative_to(target.site).as_posix() not in old.files
    ]
