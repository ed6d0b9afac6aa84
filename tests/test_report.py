import json

import pytest

from radiance_patch import report
from radiance_patch.errors import DriftError, Exit
from radiance_patch.hunk import Hunk
from radiance_patch.image import Image
from radiance_patch.plan import Change, Plan
from radiance_patch.rewrite import Verdict
from radiance_patch.status import HunkStatus

EXAMPLE = Hunk("hunks.example", "a.py", "why", "none: an example", "never", (), ())
PLACED = (None, None)


def change(before, after, path="vllm/a.py"):
    images = [None if data is None else Image(data, 0o644, 0, 0, 0) for data in (before, after)]
    return Change(path, *images)


@pytest.mark.parametrize(
    ("verdict", "done", "state", "detail"),
    [
        (Verdict(EXAMPLE, "pristine", "", 3, "d", PLACED), False, "pristine", ""),
        (Verdict(EXAMPLE, "pristine", "", 3, "d", PLACED), True, "applied", ""),
        (Verdict(EXAMPLE, "needs-review", "has changed", 3, "d", PLACED), False, "needs-review", "has changed"),
        (Verdict(EXAMPLE, "needs-review", "has changed", 3, "d", PLACED), True, "applied", "accepted unreviewed"),
        (Verdict(EXAMPLE, "upstreamed", "since 2.0"), True, "upstreamed", "since 2.0"),
    ],
)
def test_hunk_rows(verdict, done, state, detail):
    (row,) = report.hunk_rows(Plan([verdict]), done=done)
    assert row == HunkStatus("example", "a.py", state, detail, verdict.line)


def test_hunk_table_is_aligned():
    rows = [HunkStatus("a", "a.py", "applied"), HunkStatus("longer", "b.py", "needs-review", "because", 12)]
    plain = report.click.unstyle(report.hunk_table(rows))
    assert plain.splitlines() == ["  applied       a       a.py", "  needs-review  longer  b.py:12  because"]
    assert report.hunk_table([]) == ""


def test_every_state_fits_its_column():
    assert max(map(len, report.STATES)) == 12


def test_error_text_says_what_where_why_and_what_next():
    error = DriftError("It failed.", where="/a/b.py:3", why="because", next_step="do this")
    lines = report.click.unstyle(report.error_text(error)).splitlines()
    assert lines == ["error: It failed.", "  where: /a/b.py:3", "  why:   because", "  next:  do this"]
    short = report.error_text(DriftError("It failed.", next_step="do this"))
    assert report.click.unstyle(short).splitlines() == ["error: It failed.", "  next:  do this"]


def test_error_json():
    error = DriftError("It failed.", where="/a/b.py:3", next_step="do this")
    assert report.error_json("apply", error) == {
        "schema": 1,
        "command": "apply",
        "exit": 4,
        "summary": "It failed.",
        "target": None,
        "error": {"what": "It failed.", "where": "/a/b.py:3", "why": None, "next": "do this"},
    }
    assert report.error_json("apply", error, Exit.BUG)["exit"] == 70


def test_dump_is_json_for_any_path():
    assert json.loads(report.dump({"path": "/ä/\udcff"})) == {"path": "/ä/\udcff"}
    assert report.dump({"path": "/ä/\udcff"}).isascii()


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        (b"a\nb\n", b"a\nx\nb\n", ["@@ -1,2 +1,3 @@", " a", "+x", " b"]),
        (b"a\r\n", b"a\r\nx\r\n", ["@@ -1 +1,2 @@", " a\r", "+x\r"]),
        (b"a", b"a\nx\n", ["@@ -1 +1,2 @@", "-a", "\\ No newline at end of file", "+a", "+x"]),
        # Python's idea of a line end is not that of diff: these stand inside a line.
        ("a\u2028b\x0bc\n".encode(), "a\u2028b\x0bc\nx\n".encode(), ["@@ -1 +1,2 @@", " a\u2028b\x0bc", "+x"]),
        (b"a\n", b"a\n", []),
    ],
)
def test_diff_text(before, after, lines):
    head = ["--- a/vllm/a.py", "+++ b/vllm/a.py"] if lines else []
    assert report.diff_text([change(before, after)]) == "".join(f"{line}\n" for line in [*head, *lines])


def test_diff_is_of_changed_sources_alone():
    others = [change(None, b"x\n"), change(b"x\n", None), change(b"x\n", b"y\n", "vllm-1.dist-info/RECORD")]
    assert report.diff_text(others) == ""
