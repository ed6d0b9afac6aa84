"""What the hunks' tests share: a picture of where a hunk lands on a published release, and the ways to break one."""

from __future__ import annotations

import ast
import builtins
import functools
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from packaging.version import Version

from radiance_patch import locate, registry, rewrite
from radiance_patch.hunk import Hunk, Variant, Where
from radiance_patch.locate import Source
from radiance_patch.rewrite import Verdict
from tests.real.releases import RELEASES, Release, site_packages

# The blocks around a statement, outermost first, each with the node it belongs to.
Blocks = list[tuple[ast.AST, list[ast.stmt]]]
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def since(first: str) -> list[Release]:
    """Return the published releases from `first` on."""
    return [release for release in RELEASES if Version(release.version) >= Version(first)]


def between(first: str, last: str) -> list[Release]:
    """Return the published releases from `first` to `last`."""
    return [release for release in since(first) if Version(release.version) <= Version(last)]


def before(first: str) -> list[Release]:
    """Return the published releases older than `first`."""
    return [release for release in RELEASES if Version(release.version) < Version(first)]


def source(release: Release, file: str) -> Source:
    """Parse a file of a release."""
    return locate.parse((site_packages(release) / "vllm" / file).read_bytes())


@dataclass(frozen=True)
class Landing:
    """What became of a hunk: the verdict's state and detail, and where its lines stand (see `check`).

    proved: the function has the fingerprint stored for this very release.
    """

    state: str
    detail: str
    picture: str
    proved: bool = True


@functools.cache
def landings(release: Release, file: str) -> dict[str, Landing]:
    """Splice all hunks of a file into a release, once a process, and say by id where each landed."""
    pristine = source(release, file)
    version = Version(release.version)
    mine = [hunk for hunk in registry.at(registry.hunks(), version) if hunk.file == file]
    verdicts = [rewrite.judge(hunk, version, pristine) for hunk in mine]
    data = rewrite.splice(pristine, verdicts)
    tree, lines = ast.parse(data), data.decode().splitlines()
    imports = [line for line in lines if line.endswith("# radiance-patch: import")]
    assert len(imports) == len({name for hunk in mine for name in hunk.calls})
    found = {}
    for verdict in verdicts:
        picture, proved = "", False
        if verdict.insertion:
            place, variant = verdict.insertion
            proved = locate.fingerprint(place.function) == variant.fingerprints[release.version]
            node, around = _inserted(tree, lines, verdict)
            _check_names(lines, verdict, node, around)
            picture = _draw(lines, verdict, node, around)
        found[verdict.hunk.id] = Landing(verdict.state, verdict.detail, picture, proved)
    return found


def check(hunk: Hunk, release: Release, picture: str) -> None:
    """Assert that a hunk fits a release as reviewed, and that its lines land where `picture` shows them.

    The picture holds the headings of the blocks around, the statement before and the
    statement after in the same block, where there is one, and the inserted lines behind `>`.
    """
    wanted = Landing("pristine", "", textwrap.dedent(picture).strip("\n"))
    (there,) = registry.at([hunk], Version(release.version))
    assert landings(release, there.file)[hunk.id] == wanted


class Form(NamedTuple):
    """One form of a hunk, and the newest published release it is for."""

    hunk: Hunk
    variant: Variant
    release: Release


def forms(hunk: Hunk) -> list[Form]:
    """Return every form of a hunk, the hunk as it is on that form's newest release."""
    found = []
    for variant in hunk.variants:
        (there,) = registry.at([hunk], variant.last)
        found.append(Form(there, variant, Release("vllm", str(variant.last))))
    return found


def check_refused(hunk: Hunk, change: str) -> None:
    """Assert that every form of a hunk refuses its newest release after `change`, one of CHANGES, and says why."""
    spoil, state, reason = CHANGES[change]
    for form in forms(hunk):
        verdict = rewrite.judge(form.hunk, form.variant.last, locate.parse(spoil(form)))
        assert verdict.state in state
        assert re.search(reason, verdict.detail), verdict.detail
        assert form.variant.anchor.scope in verdict.detail


def _draw(lines: list[str], verdict: Verdict, node: ast.stmt, around: Blocks) -> str:
    _, block = around[-1]
    drawn = [_heading(parent) + ":" for parent, _ in around if not isinstance(parent, ast.Module)]
    drawn = [" " * 4 * depth + line for depth, line in enumerate(drawn)]
    margin = " " * 4 * len(drawn)
    at = block.index(node)
    text = [lines[number - 1][node.col_offset :] for number in range(node.lineno, (node.end_lineno or 0) + 1)]
    text[0] = text[0].removesuffix(f"  # radiance-patch: {verdict.hunk.id} {verdict.digest}")
    drawn += [f"{margin}{_summary(other)}" for other in block[max(0, at - 1) : at]]
    drawn += [f"{margin[2:]}> {line}" for line in text]
    drawn += [f"{margin}{_summary(other)}" for other in block[at + 1 : at + 2]]
    return "\n".join(drawn)


def _inserted(tree: ast.Module, lines: list[str], verdict: Verdict) -> tuple[ast.stmt, Blocks]:
    """Return the hunk's statement and the blocks it lies in, outermost first, with the node each belongs to."""
    marked = [n for n, line in enumerate(lines, 1) if f"# radiance-patch: {verdict.hunk.id} {verdict.digest}" in line]
    (found,) = [(node, around) for node, around in _walk(tree, []) if node.lineno in marked and len(marked) == 1]
    return found


def _walk(parent: ast.AST, around: Blocks) -> Iterator[tuple[ast.stmt, Blocks]]:
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        block = getattr(parent, name, None)
        if not isinstance(block, list):
            continue
        # An `elif` is drawn as the `if` that its block belongs to; the conditions above it are not.
        inner = around if _is_elif(block, name) else [*around, (parent, block)]
        for node in block:
            if isinstance(node, ast.stmt):
                yield node, inner
            yield from _walk(node, inner)


def _is_elif(block: list[ast.stmt], name: str) -> bool:
    return name == "orelse" and len(block) == 1 and isinstance(block[0], ast.If)


def _heading(node: ast.AST) -> str:
    if isinstance(node, ast.ClassDef):
        return f"class {node.name}"
    if isinstance(node, FUNCTIONS):
        return f"def {node.name}"
    return ast.unparse(node).splitlines()[0].removesuffix(":")


def _summary(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return '"""..."""'
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and len(ast.unparse(node)) > 100:
        return f"{ast.unparse(node.value.func)}(...)"
    return _heading(node) + (": ..." if hasattr(node, "body") else "")


def _check_names(lines: list[str], verdict: Verdict, node: ast.stmt, around: Blocks) -> None:
    """Assert that every name the hunk reads is a parameter, was assigned further up, or is an import of ours."""
    function = next(parent for parent, _ in reversed(around) if isinstance(parent, FUNCTIONS))
    arguments = {item.arg for item in ast.walk(function.args) if isinstance(item, ast.arg)}
    names = [item for item in ast.walk(function) if isinstance(item, ast.Name)]
    assigned = {
        item.id for item in names if isinstance(item.ctx, ast.Store) and item.lineno <= (node.end_lineno or node.lineno)
    }
    imported = {f"_radiance_{name}" for name in verdict.hunk.calls}
    for name in imported:
        line = f"from vllm._radiance import {name.removeprefix('_radiance_')} as {name}  # radiance-patch: import"
        assert lines.count(line) == 1
    read = {item.id for item in ast.walk(node) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load)}
    assert read <= arguments | assigned | imported | set(dir(builtins))
    assert imported <= read


def _statement(form: Form) -> tuple[list[bytes], int, int, bytes]:
    """Return the release's lines, the 0-based range of the anchored statement, and its indentation."""
    found = source(form.release, form.hunk.file)
    place = locate.find(found, form.variant.anchor, Where.BEFORE)
    (node,) = [
        node
        for node in ast.walk(found.tree)
        if isinstance(node, ast.stmt) and (node.lineno, node.col_offset) == (place.line, len(place.indent))
    ]
    return list(found.lines), place.line - 1, node.end_lineno or node.lineno, place.indent


def _gone(form: Form) -> bytes:
    lines, start, end, indent = _statement(form)
    return b"".join([*lines[:start], indent + b"pass\n", *lines[end:]])


def _doubled(form: Form) -> bytes:
    lines, start, end, _ = _statement(form)
    return b"".join([*lines[:end], *lines[start:end], *lines[end:]])


def _moved(form: Form) -> bytes:
    lines, start, end, indent = _statement(form)
    moved = [b"    " + line.removeprefix(indent) for line in lines[start:end]]
    return _gone(form) + b"".join([b"\n\ndef _helper(self):\n", *moved])


def _changed(form: Form) -> bytes:
    lines, start, _, indent = _statement(form)
    return b"".join([*lines[:start], indent + b"self._news = True\n", *lines[start:]])


def _renamed(form: Form) -> bytes:
    name = form.variant.anchor.scope.rpartition(".")[2].encode()
    data = source(form.release, form.hunk.file).data
    assert data.count(b"def %s(" % name) >= 1
    return data.replace(b"def %s(" % name, b"def %s_v2(" % name)


# How a release may change: what makes it so, the states it may give, and what must be said. A
# statement that is gone from its function may stand in another, and has been there all along.
CHANGES: dict[str, tuple[Callable[[Form], bytes], tuple[str, ...], str]] = {
    "gone": (_gone, ("drifted", "moved"), "no longer contains `"),
    "doubled": (_doubled, ("drifted",), r"` 2 times \(lines \d+, \d+\)"),
    "moved": (_moved, ("moved",), r"no longer contains `.*`, which stands in .*_helper \(line \d+\)"),
    "changed": (_changed, ("needs-review",), "has changed since"),
    "renamed": (_renamed, ("drifted",), "has no function"),
}
