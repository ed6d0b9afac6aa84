import ast
import itertools
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from radiance_patch import locate
from radiance_patch.hunk import Anchor, Where
from radiance_patch.locate import LocateError

EXAMPLE = '''\
"""A module."""


class Loop:
    """A class."""

    @property
    def step(self):
        """Do one step."""
        first = self.begin()  # a comment
        for item in self.items:
            keep(item)
        else:
            done()
        return first


def step():
    other = 1


def empty(): ...
'''


def find(text, scope, statement, where=Where.BEFORE):
    return locate.find(locate.parse(text.encode()), Anchor(scope, statement), where)


def fingerprint(text):
    (node,) = ast.parse(textwrap.dedent(text)).body
    return locate.fingerprint(node)


def reason(text, *anchor):
    with pytest.raises(LocateError) as caught:
        find(text, *anchor)
    return caught.value.reason, caught.value.line


@pytest.mark.parametrize(
    ("statement", "where", "line", "indent"),
    [
        ("first = self.begin()", Where.BEFORE, 10, b" " * 8),
        ("first = self.begin()", Where.AFTER, 11, b" " * 8),
        ("for item in self.items: ...", Where.BEFORE, 11, b" " * 8),
        ("for item in self.items: ...", Where.BODY, 12, b" " * 12),
        ("for item in self.items: ...", Where.AFTER, 15, b" " * 8),
        ("for item in self.items:\n    keep(item)\nelse:\n    done()", Where.BEFORE, 11, b" " * 8),
        ("first   =   self . begin( )", Where.BEFORE, 10, b" " * 8),
        ("return first", Where.AFTER, 16, b" " * 8),
    ],
)
def test_find(statement, where, line, indent):
    place = find(EXAMPLE, "Loop.step", statement, where)
    assert (place.line, place.indent, place.function.name) == (line, indent, "step")


def test_find_before_decorated_statement():
    text = "def f():\n    pass\n    @decorate\n    def inner():\n        pass\n"
    assert find(text, "f", "@decorate\ndef inner(): ...").line == 3
    assert find(text, "f", "@decorate\ndef inner(): ...", Where.BODY).line == 5


def test_find_keeps_tabs():
    assert find("def f():\n\tif a:\n\t\tx = 1\n", "f", "x = 1").indent == b"\t\t"


def test_find_after_last_line_without_newline():
    assert find("def f():\n    x = 1", "f", "x = 1", Where.AFTER).line == 3


@pytest.mark.parametrize(
    ("scope", "statement", "text", "line"),
    [
        ("Loop.stop", "x = 1", "has no function Loop.stop", 4),
        ("stop", "x = 1", "has no function stop", None),
        ("Loop", "x = 1", "has no function Loop, but a class", 4),
        ("Loop.step", "second = 2", "Loop.step no longer contains `second = 2`", 8),
        (
            "Loop.step",
            "other = 1",
            "Loop.step no longer contains `other = 1`, which stands in step (line 19)",
            19,
        ),
        ("step", "for item in self.items:\n    lose(item)", "step no longer contains `for item in self.items:`", 18),
    ],
)
def test_find_missing(scope, statement, text, line):
    assert reason(EXAMPLE, scope, statement) == (text, line)


def test_find_doubled_statement():
    text = "def f():\n    x = 1\n    if a:\n        x = 1\n"
    assert reason(text, "f", "x = 1") == ("f contains `x = 1` 2 times (lines 2, 4)", None)


def test_find_doubled_function():
    text = "def f():\n    x = 1\n\ndef f():\n    pass\n"
    assert reason(text, "f", "x = 1") == ("defines f 2 times (lines 1, 4)", 4)


def test_find_in_doubled_class():
    """The later class hides the earlier, so the statement of the earlier is dead."""
    text = "class A:\n    def f(self):\n        x = 1\n\nclass A:\n    pass\n"
    assert reason(text, "A.f", "x = 1") == ("defines A 2 times (lines 1, 5)", 5)


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("y = 2; x = 1", Where.BEFORE),
        ("x = 1; y = 2", Where.AFTER),
        ("if a: x = 1", Where.BEFORE),
        ("while x: y = 2", Where.BODY),
    ],
)
def test_find_shared_line(line, where):
    statement = "while x: ..." if where is Where.BODY else "x = 1"
    assert reason(f"def f():\n    {line}\n", "f", statement, where) == (
        "the anchored statement shares its line with another",
        2,
    )


def test_find_body_of_simple_statement():
    assert reason("def f():\n    x = 1\n", "f", "x = 1", Where.BODY)[0] == "the anchored statement has no body"


def test_find_says_long_statements_short():
    text, _ = reason(EXAMPLE, "step", f"{'x' * 100} = 1")
    assert text == f"step no longer contains `{'x' * 77}...`"


@pytest.mark.parametrize(
    ("data", "text", "line"),
    [
        (b"\xef\xbb\xbfx = 1\n", "byte order mark", 1),
        (b"x = 1\n\x0c\ny = 2\n", "form feed", 2),
        (b"x = 1\ny = '\x00'\n", "NUL byte", 2),
        (b"x = 1\ry = 2\n", "carriage return inside a line", 1),
        (b"x = 1\r\r\n", "carriage return inside a line", 1),
        (b"# -*- coding: latin-1 -*-\n", "encoding other than UTF-8", 1),
        (b"#!/bin/python\n# coding=cp1252 (was utf-8)\n", "encoding other than UTF-8", 2),
        (b"x = 1\ny = '\xe4'\n", "is not UTF-8", 2),
        (b"x = 1\ndef f(:\n", "does not parse: ", 2),
        (b"x = " + b"-" * 50_000 + b"1\n", "does not parse: it is nested too deeply", None),
    ],
)
def test_parse_refuses(data, text, line):
    with pytest.raises(LocateError) as caught:
        locate.parse(data)
    assert text in caught.value.reason
    assert caught.value.line == line


def test_find_in_a_tree_too_deep_to_walk():
    """What the parser still takes may be too much for Python's own stack."""
    text = f"def f():\n    x = 1\n    y = {'a + ' * 1500}a\n"
    source = locate.parse(text.encode())
    with pytest.raises(LocateError, match="nested too deeply to be compared"):
        locate.fingerprint(source.tree)
    assert find(text, "f", "x = 1").line == 2


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x = 1",
        b"x = 1\r\ny = 2\r\n",
        b"x = 1\r\ny = 2\n",
        b"# -*- coding: UTF-8 -*-\n",
        b"# coding: utf8\n",
        b"# Token encoding and decoding.\n",
        b"x = 1\ny = 2\n# coding: latin-1\n",
        "x = 'äöü\u2028 日本'\n".encode(),
        b'x = "\\d"\n',  # a warning in some Pythons, and warnings are errors here
    ],
)
def test_parse_accepts(data):
    source = locate.parse(data)
    assert b"".join(source.lines) == source.data == data


@pytest.mark.parametrize(
    ("data", "newline"), [(b"", b"\n"), (b"x = 1\r\n", b"\r\n"), (b"x = 1\ny = 2\r\n", b"\n"), (b"x = 1", b"\n")]
)
def test_newline(data, newline):
    assert locate.parse(data).newline == newline


FUNCTION = '''
    def f(a, b: int = 2, *rest) -> str:
        """Say so."""
        # why
        x = [a, 1,
             "two"]
        return x
    '''


@pytest.mark.parametrize(
    "same",
    [
        'def f(a,b:int=2,*rest)->str:\n  """Say other things."""\n  x=[a,1,"two"];return x\n',
        "def f(a, b: int = 2, *rest) -> str:\n\n    x = [a, 1, u'two']  # so\n    return (x)\n",
    ],
)
def test_fingerprint_ignores_layout(same):
    assert fingerprint(same) == fingerprint(FUNCTION)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def f", "def g"),
        ("def f", "async def f"),
        ("b: int = 2", "b: int = 3"),
        ("b: int", "b: bool"),
        ("*rest", "**rest"),
        ("*rest", "rest=()"),
        ("*rest", "*, rest"),
        ("b: int = 2, *rest", "b: int = 2, /, *rest"),
        (" -> str", ""),
        ("1,", "True,"),
        ("1,", "1.0,"),
        ("1,", "-1,"),
        ('"two"', 'b"two"'),
        ('"two"', '"Two"'),
        ('"two"', "None"),
        ('"two"', "[]"),
        ("[a, 1", "(a, 1"),
        ("x = [", "x += ["),
        ("return x", "return y"),
        ("return x", "return"),
        ("return x", "yield x"),
        ("return x", "x"),
        ("return x", "return x\n        pass"),
        ("return x", "del x"),
        ("return x", "return not x"),
        ("return x", "return x.y"),
        ("return x", "return x[0:]"),
        ("return x", "return x[:0]"),
        ("return x", "if x:\n            return x"),
        ("def f", "@cached\n    def f"),
    ],
)
def test_fingerprint_changes(old, new):
    changed = FUNCTION.replace(old, new)
    if new.startswith("(a"):
        changed = changed.replace('"two"]', '"two")')
    assert fingerprint(changed) != fingerprint(FUNCTION)


def test_fingerprint_does_not_ignore_strings_that_are_no_docstring():
    assert fingerprint("def f():\n    a()\n    'one'\n") != fingerprint("def f():\n    a()\n    'two'\n")


def test_fingerprint_is_pinned():
    """A change of the algorithm makes every stored fingerprint wrong."""
    assert fingerprint(FUNCTION) == "2cfa97e8b5bc7d66"


NAMES = st.sampled_from("abcdef")
EXPRESSIONS = st.recursive(
    st.one_of(NAMES, st.integers(0, 3).map(str), st.sampled_from(["None", "True", "'x'", "b'x'", "..."])),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "*", "and", "is", "<"]), inner).map(lambda t: f"({' '.join(t)})"),
        st.tuples(NAMES, st.lists(inner, max_size=2)).map(lambda t: f"{t[0]}({', '.join(t[1])})"),
        st.lists(inner, max_size=2).map(lambda items: f"[{', '.join(items)}]"),
    ),
    max_leaves=4,
)
SIMPLE = st.one_of(
    st.tuples(NAMES, EXPRESSIONS).map(lambda t: f"{t[0]} = {t[1]}"), EXPRESSIONS.map(lambda e: f"return {e}")
)
HEADS = st.one_of(
    EXPRESSIONS.map(lambda e: f"if {e}:"),
    st.tuples(NAMES, EXPRESSIONS).map(lambda t: f"for {t[0]} in {t[1]}:"),
    NAMES.map(lambda name: f"def {name}():"),
)


def indented(lines):
    return [f"    {line}" for line in lines]


def joined(parts):
    return list(itertools.chain.from_iterable(parts))


BLOCKS = st.recursive(
    st.lists(SIMPLE.map(lambda line: [line]), min_size=1, max_size=3).map(joined),
    lambda inner: st.lists(
        st.one_of(SIMPLE.map(lambda line: [line]), st.tuples(HEADS, inner).map(lambda t: [t[0], *indented(t[1])])),
        min_size=1,
        max_size=3,
    ).map(joined),
    max_leaves=6,
)
SCOPES = ["outer", "A.f", "A.g", "last"]


@st.composite
def modules(draw):
    outer, f, g, last = (indented(draw(BLOCKS)) for _ in range(4))
    methods = indented(["def f(self):", *f, "def g(self):", *g])
    return "\n".join(["def outer():", *outer, "class A:", *methods, "def last():", *last, ""])


@given(modules(), st.data())
def test_find_stays_inside_its_scope(text, data):
    source = locate.parse(text.encode())
    statements = [node for node in ast.walk(source.tree) if isinstance(node, ast.stmt)]
    scope = data.draw(st.sampled_from(SCOPES))
    anchor = Anchor(scope, ast.unparse(data.draw(st.sampled_from(statements))))
    where = data.draw(st.sampled_from(Where))
    try:
        place = locate.find(source, anchor, where)
    except LocateError:
        return
    function = place.function
    assert function.name == scope.rpartition(".")[2]
    assert function.lineno < place.line <= function.end_lineno + 1
    assert len(place.indent) > function.col_offset
    inside = [node for node in ast.walk(function) if node is not function and isinstance(node, ast.stmt)]
    (only,) = [node for node in inside if ast.dump(node) == ast.dump(ast.parse(anchor.statement).body[0])]
    wanted = {Where.BEFORE: only.lineno, Where.AFTER: only.end_lineno + 1}
    assert place.line == wanted[where] if where in wanted else only.body[0].lineno


@given(BLOCKS, BLOCKS)
def test_fingerprints_are_equal_only_for_equal_trees(one, other):
    texts = ["\n".join(["def f():", *indented(block), ""]) for block in (one, other)]
    equal = ast.dump(ast.parse(texts[0])) == ast.dump(ast.parse(texts[1]))
    assert (fingerprint(texts[0]) == fingerprint(texts[1])) == equal


@given(BLOCKS)
def test_fingerprint_survives_another_layout(block):
    text = "\n".join(["def f():", *indented(block), ""])
    spaced = "\n".join(["def f():", "    '''Text.'''", *(f"{line}  # note\n" for line in indented(block)), ""])
    assert fingerprint(ast.unparse(ast.parse(text))) == fingerprint(spaced) == fingerprint(text)
