"""From an anchor to one place in a source file, or the reason why there is none.

Positions come from `ast`, whose byte offsets are exact for the files `parse` lets
through; nothing is ever matched approximately.
"""

from __future__ import annotations

import ast
import hashlib
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from radiance_patch.hunk import Anchor, Where

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = Function | ast.ClassDef

# The form of PEP 263.
COOKIE = re.compile(rb"[ \t]*#.*?coding[:=][ \t]*([-\w.]+)")


class LocateError(Exception):
    """Why an anchor has no place. line: 1-based, where one can be named."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


class MovedError(LocateError):
    """The anchored statement stands in another function now; line: where."""


@dataclass(frozen=True)
class Source:
    """A parsed file: its bytes, their lines (with terminators) and the tree."""

    data: bytes
    lines: tuple[bytes, ...]
    tree: ast.Module

    @property
    def newline(self) -> bytes:
        """The terminator of the first line, which insertions use too."""
        return b"\r\n" if self.lines and self.lines[0].endswith(b"\r\n") else b"\n"


@dataclass(frozen=True)
class Place:
    """Where lines go: before 1-based `line`, indented by `indent`; `function` is the scope's node."""

    line: int
    indent: bytes
    function: Function


def parse(data: bytes) -> Source:
    """Parse a target file.

    Raises LocateError for a file in which `ast` offsets would not be byte offsets
    (shared design notes: BOM, form feed, lone carriage return, another encoding).
    """
    if data.startswith(b"\xef\xbb\xbf"):
        raise LocateError("starts with a byte order mark, which vLLM's own files never have", 1)
    for number, line in enumerate(data.split(b"\n"), 1):
        for odd, name in ((b"\f", "a form feed"), (b"\0", "a NUL byte")):
            if odd in line:
                raise LocateError(f"contains {name}, which vLLM's own files never have", number)
        if b"\r" in line[:-1]:
            raise LocateError("contains a carriage return inside a line", number)
        cookie = COOKIE.match(line) if number <= 2 else None
        if cookie and cookie[1].lower() not in (b"utf-8", b"utf8", b"utf_8"):
            raise LocateError("declares an encoding other than UTF-8", number)
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            raise LocateError("is not UTF-8", number) from None
    try:
        with warnings.catch_warnings():  # an odd escape in vLLM's text is no business of ours
            warnings.simplefilter("ignore")
            tree = ast.parse(data)
    except SyntaxError as error:
        raise LocateError(f"does not parse: {error.msg}", error.lineno) from None
    except (RecursionError, MemoryError):  # how CPython says so
        raise LocateError("does not parse: it is nested too deeply") from None
    return Source(data, tuple(data.splitlines(keepends=True)), tree)


def find(source: Source, anchor: Anchor, where: Where) -> Place:
    """Find an anchor's only place.

    Raises LocateError when the function or the statement is missing, moved or there
    more than once, or when the statement shares its lines with another.
    """
    function = scope(source, anchor.scope)
    pattern = _statement(anchor.statement)
    matches = [node for node in statements(function) if _same(node, pattern)]
    if not matches:
        raise _missing(source, anchor, function, pattern)
    if len(matches) > 1:
        lines = ", ".join(str(node.lineno) for node in matches)
        raise LocateError(f"{anchor.scope} contains `{title(anchor.statement)}` {len(matches)} times (lines {lines})")
    return _place(source, matches[0], where, function)


def fingerprint(function: ast.AST) -> str:
    """Hash a function's normalised tree: layout, comments and docstrings do not count.

    Empty fields are left out, so that every Python version hashes a tree alike
    (3.12 added `type_params`, 3.13 changed `ast.dump`). Raises LocateError for a tree too deep to walk.
    """
    return hashlib.sha256(repr(_tree(function)).encode()).hexdigest()[:16]


def same_except(before: Source, after: Source, inserted: set[int]) -> bool:
    """Whether `after` is `before` once the statements that start on the `inserted` lines are taken out."""
    for node in ast.walk(after.tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                setattr(node, name, [child for child in block if child.lineno not in inserted])
    return _tree(before.tree, keep_docstrings=True) == _tree(after.tree, keep_docstrings=True)


def scope(source: Source, qualified: str) -> Function:
    """Return the only function of a qualified name. Raises LocateError when there is none, or more than one."""
    node: ast.Module | Scope = source.tree
    for name in qualified.split("."):
        found = [child for child in node.body if isinstance(child, Scope) and child.name == name]
        if not found:
            raise LocateError(f"has no function {qualified}", getattr(node, "lineno", None))
        if len(found) > 1:
            lines = ", ".join(str(child.lineno) for child in found)
            raise LocateError(f"defines {name} {len(found)} times (lines {lines})", found[1].lineno)
        node = found[0]
    if not isinstance(node, Function):
        raise LocateError(f"has no function {qualified}, but a class", getattr(node, "lineno", None))
    return node


def _statement(text: str) -> ast.stmt:
    (node,) = ast.parse(text).body
    return node


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Walk every statement inside a node."""
    for child in ast.walk(node):
        if isinstance(child, ast.stmt) and child is not node:
            yield child


def _same(node: ast.stmt, pattern: ast.stmt) -> bool:
    if type(node) is not type(pattern):
        return False
    body = getattr(pattern, "body", None)
    any_body = isinstance(body, list) and len(body) == 1 and _is_ellipsis(body[0])
    skip = {"body", "orelse", "finalbody", "handlers"} if any_body else set()
    return all(
        _tree(getattr(node, name)) == _tree(getattr(pattern, name))
        for name in node._fields
        if name not in skip and name != "type_comment"
    )


def _is_ellipsis(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is ...


def _missing(source: Source, anchor: Anchor, function: ast.AST, pattern: ast.stmt) -> LocateError:
    elsewhere = [node for node in statements(source.tree) if _same(node, pattern)]
    line = getattr(function, "lineno", None)
    if elsewhere:
        places = ", ".join(f"{_enclosing(source.tree, node)} (line {node.lineno})" for node in elsewhere)
        reason = f"{anchor.scope} no longer contains `{title(anchor.statement)}`, which stands in {places}"
        return MovedError(reason, elsewhere[0].lineno)
    return LocateError(f"{anchor.scope} no longer contains `{title(anchor.statement)}`", line)


def _enclosing(tree: ast.Module, wanted: ast.stmt) -> str:
    def walk(node: ast.AST, name: str) -> str | None:
        for child in ast.iter_child_nodes(node):
            if child is wanted:
                return name or "the module"
            inner = f"{name}.{child.name}".lstrip(".") if isinstance(child, Scope) else name
            if found := walk(child, inner):
                return found
        return None

    return walk(tree, "") or "the module"


def title(statement: str) -> str:
    """Return a statement's first line, cut to 80 characters."""
    first = statement.strip().splitlines()[0]
    return first if len(first) <= 80 else first[:77] + "..."


def _place(source: Source, node: ast.stmt, where: Where, function: Function) -> Place:
    if where is Where.BODY:
        block = getattr(node, "body", None)
        if not block:
            raise LocateError("the anchored statement has no body", node.lineno)
        node = block[0]
    decorators = getattr(node, "decorator_list", [])
    start = min([node.lineno, *(item.lineno for item in decorators)])
    indent = source.lines[node.lineno - 1][: node.col_offset]
    if indent.strip():
        raise LocateError("the anchored statement shares its line with another", node.lineno)
    if where is not Where.AFTER:
        return Place(start, indent, function)
    end = node.end_lineno or node.lineno
    rest = source.lines[end - 1][node.end_col_offset or 0 :].strip()
    if rest and not rest.startswith(b"#"):
        raise LocateError("the anchored statement shares its line with another", end)
    return Place(end + 1, indent, function)


def _tree(value: object, *, keep_docstrings: bool = False) -> object:
    try:
        return _normal(value, keep_docstrings=keep_docstrings)
    except RecursionError:
        raise LocateError("is nested too deeply to be compared") from None


def _normal(value: object, *, keep_docstrings: bool = False) -> object:
    if isinstance(value, ast.AST):
        fields: list[object] = [type(value).__name__]
        for name, child in ast.iter_fields(value):
            if child is None or child == [] or name in ("type_comment", "kind", "ctx"):
                continue
            if name == "body" and isinstance(child, list) and not keep_docstrings:
                child = child[_docstring(value) :]  # noqa: PLW2901
            fields.append((name, _normal(child, keep_docstrings=keep_docstrings)))
        return tuple(fields)
    if isinstance(value, list):
        return tuple(_normal(child, keep_docstrings=keep_docstrings) for child in value)
    return repr(value)


def _docstring(node: ast.AST) -> int:
    has_one = isinstance(node, Scope | ast.Module) and ast.get_docstring(node, clean=False) is not None
    return 1 if has_one else 0
