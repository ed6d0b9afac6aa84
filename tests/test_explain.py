import textwrap

import pytest

from radiance_patch import explain, locate
from radiance_patch.hunk import Anchor
from radiance_patch.locate import LocateError

OLD = '''
class Scheduler:
    def schedule(self):
        """Says what it does."""
        # A comment.
        first = 1
        for request in self.running:
            request.run()
        return first
'''


def source(text):
    return locate.parse(textwrap.dedent(text).encode())


def diff(new, scope="Scheduler.schedule"):
    return explain.function(source(OLD), source(new), scope, ("old", "new"))


def test_only_what_changed():
    new = OLD.replace("request.run()", "request.run(1)")
    assert diff(new).splitlines() == [
        "--- old",
        "+++ new",
        "@@ -8 +8 @@",
        "         for request in self.running:",
        "-            request.run()",
        "+            request.run(1)",
        "         return first",
    ]


def test_lines_are_those_of_the_files():
    new = "\n\n" + OLD.replace("first = 1", "first = 1\n        second = 2")
    assert "@@ -7 +9 @@" in diff(new)
    assert explain.first_line(diff(new)) == 9
    assert new.splitlines()[8] == "        second = 2"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# A comment.", "# Another."),
        ('"""Says what it does."""', '"""Says\n        more."""'),
        ("first = 1", "first = 1  # so"),
        ("first = 1", "\n\n        first = 1"),
        ("first = 1", "first = 1   "),
    ],
)
def test_what_no_fingerprint_counts_is_no_change(old, new):
    assert diff(OLD.replace(old, new)) == ""
    assert explain.first_line("") is None


def test_a_hash_in_a_string_is_no_comment():
    assert "+        first = '# 1'" in diff(OLD.replace("first = 1", "first = '# 1'"))


def test_a_function_that_is_gone():
    with pytest.raises(LocateError, match="has no function"):
        diff(OLD.replace("schedule", "plan"))


def test_lines_that_went_at_the_end():
    assert "-        return first" in diff(OLD.replace("        return first\n", ""))


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        ("for each in self.running: ...", ["-for each in self.running:", "+for request in self.running:   (line 7)"]),
        ("nothing.like('it')", ["-nothing.like('it')"]),
        ("first = 2", ["-first = 2", "+first = 1   (line 6)"]),
    ],
)
def test_a_lost_statement(statement, shown):
    assert explain.statement(source(OLD), Anchor("Scheduler.schedule", statement)).splitlines()[:2] == shown


def test_a_lost_function():
    shown = explain.statement(source(OLD), Anchor("Scheduler.reschedule", "first = 1"))
    assert shown.splitlines() == ["-def Scheduler.reschedule", "+def Scheduler.schedule   (line 3)"]


def test_a_file_of_any_bytes():
    text = explain.file(b"a\n\xff\nc\n", b"a\nb\nc\n", ("old", "new"))
    assert text.splitlines()[2:] == ["@@ -2 +2 @@", " a", "-\ufffd", "+b", " c"]
    assert explain.file(b"", b"a\n", ("old", "new")).splitlines()[2:] == ["@@ -1 +1 @@", "+a"]
