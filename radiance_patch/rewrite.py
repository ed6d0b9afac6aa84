"""One file and its hunks: the verdict on each, and the file's new content."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass

from packaging.version import Version

from radiance_patch import explain, locate, registry
from radiance_patch.hunk import Hunk, Variant
from radiance_patch.locate import LocateError, MovedError, Place, Source

SENTINEL = "# radiance-patch:"

# With a hunk in one of these states nothing is written, unless unreviewed ones are accepted.
REFUSED = frozenset({"drifted", "moved", "missing-file", "needs-review"})


@dataclass(frozen=True)
class Verdict:
    """What became of one hunk.

    state: one of report.STATES. detail: the reason, for people. line: in the target, 1-based.
    digest: what stands in the patched line, once the hunk has a place. diff: what explains
    the state. changed: the function is not as it was on any proved release.
    """

    hunk: Hunk
    state: str
    detail: str = ""
    line: int | None = None
    digest: str | None = None
    insertion: tuple[Place, Variant] | None = None
    diff: str = ""
    changed: bool = False


def judge(hunk: Hunk, version: Version, source: Source) -> Verdict:
    """Say whether a hunk fits a file: pristine (it does), needs-review, drifted, moved or upstreamed."""
    if hunk.upstreamed_since and version >= Version(hunk.upstreamed_since):
        return Verdict(hunk, "upstreamed", f"vLLM does this itself since {hunk.upstreamed_since}")
    exact = hunk.variant_for(version)
    variant = exact or registry.closest(hunk, version)
    try:
        place = locate.find(source, variant.anchor, variant.edit.where)
        found = locate.fingerprint(place.function)
    except LocateError as error:
        state = "moved" if isinstance(error, MovedError) else "drifted"
        return Verdict(hunk, state, error.reason, error.line, diff=explain.statement(source, variant.anchor))
    digest = registry.digest(hunk, variant.edit)
    if found not in variant.fingerprints.values():
        detail = f"{variant.anchor.scope} has changed since the releases this hunk was proved on"
        line = place.function.lineno
        return Verdict(hunk, "needs-review", detail, line, digest, (place, variant), changed=True)
    if exact is None:
        detail = f"{version} is no release this hunk was proved on, though {variant.anchor.scope} is unchanged"
        return Verdict(hunk, "needs-review", detail, place.function.lineno, digest, (place, variant))
    return Verdict(hunk, "pristine", line=place.line, digest=digest, insertion=(place, variant))


def splice(source: Source, verdicts: list[Verdict]) -> bytes:
    """Insert the lines of all verdicts that have a place, and the imports they need.

    Raises LocateError when the result does not parse, or differs by more than the insertions.
    """
    insertions: list[tuple[int, bytes]] = []
    modules: set[str] = set()
    for verdict in verdicts:
        if verdict.insertion is not None:
            place, variant = verdict.insertion
            modules.update(verdict.hunk.calls)
            insertions.append((place.line, _lines(source, place.indent, variant.edit.text, verdict)))
    imports = [f"from vllm._radiance import {name} as _radiance_{name}  {SENTINEL} import" for name in sorted(modules)]
    insertions.insert(0, (_import_line(source), b"".join(text.encode() + source.newline for text in imports)))
    lines, added = _merge(source, insertions)
    data = b"".join(lines)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(data, "patched", "exec", dont_inherit=True)
        after = locate.parse(data)
    except SyntaxError as error:
        raise LocateError(f"the patched file would not compile: {error.msg}", error.lineno) from None
    except (RecursionError, MemoryError):
        raise LocateError("the patched file is nested too deeply to compile") from None
    if not locate.same_except(source, after, added):
        raise LocateError("the patched file would differ by more than the inserted lines")
    return data


def _lines(source: Source, indent: bytes, text: str, verdict: Verdict) -> bytes:
    first, *rest = text.splitlines()
    first = f"{first}  {SENTINEL} {verdict.hunk.id} {verdict.digest}"
    return b"".join(indent + line.encode() + source.newline for line in [first, *rest])


def _import_line(source: Source) -> int:
    """Find the line after the last import of the module's own body, or after its docstring where it imports nothing."""
    body = source.tree.body
    above: list[ast.stmt] = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    if not above and ast.get_docstring(source.tree, clean=False) is not None:
        above = body[:1]
    return (above[-1].end_lineno or above[-1].lineno) + 1 if above else 1


def _merge(source: Source, insertions: list[tuple[int, bytes]]) -> tuple[list[bytes], set[int]]:
    """Merge insertions, each before a 1-based line, and tell on which lines of the result they stand."""
    at: dict[int, list[bytes]] = {}
    for line, text in insertions:
        at.setdefault(line, []).append(text)
    lines: list[bytes] = []
    added: set[int] = set()
    for number in range(1, len(source.lines) + 2):
        for text in at.get(number, []):
            if lines and not lines[-1].endswith(b"\n"):
                lines[-1] += source.newline
            new = text.splitlines(keepends=True)
            added.update(range(len(lines) + 1, len(lines) + len(new) + 1))
            lines += new
        if number <= len(source.lines):
            lines.append(source.lines[number - 1])
    return lines, added
