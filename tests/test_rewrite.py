import ast
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from radiance_patch import locate, registry, rewrite
from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where
from radiance_patch.locate import LocateError

TEXT = '''\
"""A module."""

from __future__ import annotations

import os


class Loop:
    def step(self, item):
        first = item
        for part in item:
            self.take(part)
        return first
'''
FINGERPRINT = locate.fingerprint(locate.parse(TEXT.encode()).tree.body[-1].body[0])


def variant(where, text="_radiance_draft.begin(self, item)", statement="first = item", releases=("1.0", "1.2")):
    return Variant(Anchor("Loop.step", statement), Edit(where, text), dict.fromkeys(releases, FINGERPRINT))


def hunk(*variants, name="example", calls=("draft",), **more):
    return Hunk(f"hunks.{name}", "loop.py", "it shows", "none: an example", "never", calls, variants, **more)


def judged(one, text=TEXT, version="1.0"):
    return rewrite.judge(one, Version(version), locate.parse(text.encode()))


def spliced(text, *hunks):
    source = locate.parse(text.encode())
    return rewrite.splice(source, [rewrite.judge(one, Version("1.0"), source) for one in hunks]).decode()


def without_marked(text):
    return "".join(line for line in text.splitlines(keepends=True) if "# radiance-patch:" not in line)


@pytest.mark.parametrize(
    ("version", "text", "state", "detail"),
    [
        ("1.0", TEXT, "pristine", ""),
        ("1.1", TEXT, "pristine", ""),
        ("1.2", TEXT, "pristine", ""),
        ("1.3", TEXT, "needs-review", "1.3 is no release this hunk was proved on, though Loop.step is unchanged"),
        ("0.9", TEXT, "needs-review", "0.9 is no release this hunk was proved on, though Loop.step is unchanged"),
        (
            "1.0",
            TEXT.replace("return first", "return 1"),
            "needs-review",
            "Loop.step has changed since the releases this hunk was proved on",
        ),
        ("1.0", TEXT.replace("def step", "def go"), "drifted", "has no function Loop.step"),
        ("1.9", TEXT.replace("first = item", "pass"), "drifted", "Loop.step no longer contains `first = item`"),
        ("2.0", TEXT, "upstreamed", "vLLM does this itself since 2.0"),
        ("2.0.1", "", "upstreamed", "vLLM does this itself since 2.0"),
    ],
)
def test_judge(version, text, state, detail):
    verdict = judged(hunk(variant(Where.BEFORE), upstreamed_since="2.0"), text, version)
    assert (verdict.state, verdict.detail) == (state, detail)
    assert (verdict.insertion is not None) == (state in ("pristine", "needs-review")) == (verdict.digest is not None)


def test_judge_a_tree_too_deep_to_walk():
    verdict = judged(hunk(variant(Where.BEFORE)), TEXT.replace("return first", f"return {'a + ' * 1500}a"))
    assert (verdict.state, verdict.detail) == ("drifted", "is nested too deeply to be compared")


def test_judge_names_the_line():
    assert judged(hunk(variant(Where.AFTER))).line == 11
    assert judged(hunk(variant(Where.AFTER)), version="1.3").line == 9


def test_judge_takes_the_form_of_the_release():
    old = variant(Where.BEFORE, releases=("1.0", "1.2"))
    new = variant(Where.AFTER, releases=("1.3", "1.5"))
    for version, wanted in (("1.0", old), ("1.2", old), ("1.3", new), ("1.4", new), ("1.9", new), ("0.1", old)):
        assert judged(hunk(old, new), version=version).insertion[1] is wanted


@pytest.mark.parametrize(
    ("where", "statement", "expected"),
    [
        (Where.BEFORE, "first = item", "        @\n        first = item\n"),
        (Where.AFTER, "first = item", "        first = item\n        @\n        for part"),
        (Where.BODY, "for part in item: ...", "        for part in item:\n            @\n            self.take"),
        (Where.AFTER, "for part in item: ...", "self.take(part)\n        @\n        return first\n"),
    ],
)
def test_splice(where, statement, expected):
    one = hunk(variant(where, statement=statement))
    text = spliced(TEXT, one)
    digest = registry.digest(one, one.variants[0].edit)
    line = f"_radiance_draft.begin(self, item)  # radiance-patch: example {digest}"
    assert expected.replace("@", line) in text
    assert "import os\nfrom vllm._radiance import draft as _radiance_draft  # radiance-patch: import\n\n\nclass" in text
    assert without_marked(text) == TEXT


def test_splice_two_lines():
    text = spliced(TEXT, hunk(variant(Where.BEFORE, "if _radiance_draft.stopped(self):\n    return None")))
    assert "            return None\n        first = item\n" in text


def test_splice_several_hunks_share_imports():
    one = hunk(variant(Where.BEFORE), name="a", calls=("draft", "width"))
    two = hunk(variant(Where.AFTER), name="b")
    three = hunk(variant(Where.BEFORE), name="c")
    text = spliced(TEXT, one, two, three)
    assert text.count("from vllm._radiance import draft as _radiance_draft") == 1
    assert text.count("from vllm._radiance import width as _radiance_width") == 1
    order = [line.split()[-2] for line in text.splitlines() if "begin(" in line]
    assert order == ["a", "c", "b"]
    assert without_marked(text) == TEXT


def test_splice_leaves_out_hunks_without_a_place():
    lost = hunk(variant(Where.BEFORE, statement="second = 2"), name="lost", calls=("width",))
    text = spliced(TEXT, hunk(variant(Where.BEFORE)), lost)
    assert "lost" not in text
    assert "width" not in text


@pytest.mark.parametrize(
    ("head", "imports_at"),
    [
        ("import os\nx = 1\n", 2),
        ("import os  # why\n\nx = 1\n", 2),
        ("from os import (\n    path,\n    sep,\n)\n", 5),
        ("x = 1\nimport os\n", 3),
        ('"""Text,\nand more."""\nx = 1\n', 3),
        ("# a comment\nx = 1\n", 1),
        ("if x:\n    import os\n", 1),
    ],
)
def test_import_line(head, imports_at):
    text = spliced(head + TEXT.partition("import os\n")[2], hunk(variant(Where.BEFORE)))
    assert text.splitlines()[imports_at - 1].startswith("from vllm._radiance import draft")
    assert ast.get_docstring(ast.parse(text)) == ast.get_docstring(ast.parse(head))


def test_splice_keeps_line_ends():
    text = spliced(TEXT.replace("\n", "\r\n"), hunk(variant(Where.BEFORE)))
    assert text.count("\r\n") == text.count("\n") == TEXT.count("\n") + 2


def test_splice_after_a_last_line_without_newline():
    text = TEXT.removesuffix("        return first\n").rstrip("\n")
    source = locate.parse(text.encode())
    place = locate.find(source, Anchor("Loop.step", "for part in item: ..."), Where.AFTER)
    one = hunk(variant(Where.AFTER, statement="for part in item: ..."))
    verdict = dataclasses.replace(judged(one, text), insertion=(place, one.variants[0]))
    assert without_marked(rewrite.splice(source, [verdict]).decode()) == text + "\n"


@pytest.mark.parametrize(
    ("text", "edit", "reason"),
    [
        (TEXT, "begin(", "would not compile"),
        (TEXT, "return (yield)\n  x", "would not compile"),
        (TEXT, "break", "would not compile: 'break' outside loop"),
        (TEXT, "if a:\n    b\nelse:", "would not compile"),
    ],
)
def test_splice_refuses(text, edit, reason):
    with pytest.raises(LocateError, match=reason):
        spliced(text, hunk(variant(Where.BEFORE, edit)))


@pytest.mark.parametrize(
    ("first", "line"),
    [
        ('first = """\n        item\n        """', 11),  # a string that would grow by a line
        ("if item:\n            pass\n        first = item", 11),  # a block that would lose its body
    ],
)
def test_splice_refuses_a_wrong_place(first, line):
    """A second net under `locate.find`: even a wrong place must not change what vLLM does."""
    text = TEXT.replace("first = item", first)
    one = hunk(variant(Where.BEFORE, statement="return first"))
    verdict = judged(one, text)
    place, form = verdict.insertion
    moved = dataclasses.replace(verdict, insertion=(dataclasses.replace(place, line=line), form))
    with pytest.raises(LocateError, match=r"would differ by more|would not compile"):
        rewrite.splice(locate.parse(text.encode()), [moved])


def test_splice_is_silent_about_odd_escapes():
    """Later Pythons warn of them, and a warning must not become a refusal."""
    text = TEXT.replace("import os\n", 'import os\n\nodd = "\\d" is os\n')
    assert without_marked(spliced(text, hunk(variant(Where.BEFORE)))) == text


LINES = st.lists(
    st.sampled_from(["x = 1", "x = '''a\n  b'''", "for i in x:\n            pass", "# note", ""]), max_size=6
)
ENDS = st.sampled_from(["\n", "\r\n"])


@given(LINES, LINES, ENDS, st.sampled_from(Where))
def test_splice_adds_lines_and_nothing_else(above, below, end, where):
    body = ["class Loop:", "    def step(self, item):", *(f"        {line}" for line in above)]
    body += ["        for part in item:", "            pass", *(f"        {line}" for line in below)]
    text = "\n".join(["import os", *body, ""]).replace("\n", end)
    one = hunk(variant(where, statement="for part in item: ..."))
    source = locate.parse(text.encode())
    verdict = rewrite.judge(one, Version("1.0"), source)
    data = rewrite.splice(source, [verdict]).decode()
    kept = [line for line in data.split("\n") if "# radiance-patch:" not in line]
    assert "\n".join(kept) == text
    assert len(data.split("\n")) - len(kept) == 2
