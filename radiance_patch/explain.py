"""The smallest diff that explains a verdict: of a function since it was proved, or of a statement that is lost."""

from __future__ import annotations

import ast
import difflib
import io
import tokenize
from collections.abc import Iterator

from radiance_patch import locate
from radiance_patch.hunk import Anchor
from radiance_patch.locate import Function, LocateError, Scope, Source

Line = tuple[int, str]

# What is less like the lost statement than this says nothing about where it went.
ALIKE = 0.6


def function(old: Source, new: Source, scope: str, names: tuple[str, str]) -> str:
    """Return what changed in a function, less comments, docstrings and blank lines; empty when nothing did.

    names: of the two files. Raises LocateError where one of them has no such function.
    """
    before, after = (_code(source, locate.scope(source, scope)) for source in (old, new))
    return _render(before, after, names)


def file(old: bytes, new: bytes, names: tuple[str, str]) -> str:
    """Return what changed in a file, whatever it holds."""
    sides = [list(enumerate(data.decode("utf-8", "replace").splitlines(), 1)) for data in (old, new)]
    return _render(sides[0], sides[1], names)


def first_line(diff: str) -> int | None:
    """Return the line of the new side at which a diff of this module begins to differ."""
    heads = [line for line in diff.splitlines() if line.startswith("@@")]
    return int(heads[0].split("+")[1].split()[0]) if heads else None


def statement(source: Source, anchor: Anchor) -> str:
    """Show a lost anchor beside what is most like it: statements of its function, or functions of its file."""
    try:
        wanted, found = _candidates(source, anchor)
    except RecursionError:  # how CPython says that a tree is too deep
        return ""
    ratio = {line: difflib.SequenceMatcher(None, wanted, text, autojunk=False).ratio() for line, text in found}
    near = sorted((entry for entry in found if ratio[entry[0]] >= ALIKE), key=lambda entry: -ratio[entry[0]])[:3]
    return "\n".join([f"-{wanted}", *(f"+{text}   (line {line})" for line, text in near)])


def _candidates(source: Source, anchor: Anchor) -> tuple[str, list[Line]]:
    try:
        inside = locate.scope(source, anchor.scope)
    except LocateError:
        return f"def {anchor.scope}", [(line, f"def {name}") for line, name in _functions(source.tree, "")]
    (pattern,) = ast.parse(anchor.statement).body
    return _heading(pattern), [(node.lineno, _heading(node)) for node in locate.statements(inside)]


def _heading(node: ast.stmt) -> str:
    return ast.unparse(node).splitlines()[0]


def _functions(node: ast.Module | Scope, prefix: str) -> Iterator[Line]:
    for child in node.body:
        if isinstance(child, Scope):
            name = f"{prefix}{child.name}"
            if isinstance(child, Function):
                yield child.lineno, name
            yield from _functions(child, f"{name}.")


def _code(source: Source, node: Function) -> list[Line]:
    """Return a function's lines by number, as they stand, less what no fingerprint counts."""
    lines = {number: source.lines[number - 1].decode().rstrip() for number in range(node.lineno, _end(node) + 1)}
    for token in tokenize.tokenize(io.BytesIO(source.data).readline):
        if token.type == tokenize.COMMENT and token.start[0] in lines:
            lines[token.start[0]] = lines[token.start[0]][: token.start[1]].rstrip()
    if ast.get_docstring(node, clean=False) is not None:
        for number in range(node.body[0].lineno, _end(node.body[0]) + 1):
            del lines[number]
    return [(number, text) for number, text in lines.items() if text]


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _render(old: list[Line], new: list[Line], names: tuple[str, str]) -> str:
    matcher = difflib.SequenceMatcher(None, [text for _, text in old], [text for _, text in new], autojunk=False)
    parts: list[str] = []
    for group in matcher.get_grouped_opcodes(1):
        first = next(code for code in group if code[0] != "equal")
        parts.append(f"@@ -{_number(old, first[1])} +{_number(new, first[3])} @@")
        for kind, start, end, low, high in group:
            if kind == "equal":
                parts += [f" {text}" for _, text in new[low:high]]
                continue
            parts += [f"-{text}" for _, text in old[start:end]]
            parts += [f"+{text}" for _, text in new[low:high]]
    return "\n".join([f"--- {names[0]}", f"+++ {names[1]}", *parts]) if parts else ""


def _number(side: list[Line], at: int) -> int:
    return side[min(at, len(side) - 1)][0] if side else 1
