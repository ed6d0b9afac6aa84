"""Targets of odd bytes: only our lines are added, with the file's own line ending, or nothing at all is."""

from pathlib import Path

import pytest

from tests.faults.sandbox import SMALL, SMALL_FILE, differences, ok, rewrite, snapshot, tool, untouched

MARK = b"# radiance-patch: "


def added(site: Path, old: bytes) -> list[bytes]:
    """Return the lines that apply added, once it is proved that it changed no other byte."""
    lines = (site / SMALL_FILE).read_bytes().split(b"\n")
    ours = [line for line in lines if MARK in line]
    assert b"\n".join(line for line in lines if MARK not in line) == old
    return ours


def cycle(site: Path) -> list[bytes]:
    before, old = snapshot(site), (site / SMALL_FILE).read_bytes()
    ok("apply", *SMALL, site=site)
    ok("status", site=site)
    lines = added(site, old)
    ok("revert", site=site)
    assert differences(before, site) == []
    return lines


def test_crlf(site: Path):
    """vLLM's wheels from 0.27.1 to 0.33.0 do hold a file with CRLF (config/fault_tolerance.py)."""
    rewrite(site, SMALL_FILE, lambda data: data.replace(b"\n", b"\r\n"))
    lines = cycle(site)
    assert len(lines) == 2
    assert all(line.endswith(b"\r") for line in lines)


def test_lf(site: Path):
    lines = cycle(site)
    assert len(lines) == 2
    assert not any(b"\r" in line for line in lines)


def test_mixed_line_endings(site: Path):
    """vLLM 0.11.0 had such a file; ours follow the first line's ending."""
    rewrite(site, SMALL_FILE, lambda data: data.replace(b"\n", b"\r\n", 20))
    assert all(line.endswith(b"\r") for line in cycle(site))


def test_non_ascii_and_tabs_in_comments(site: Path):
    rewrite(site, SMALL_FILE, lambda data: data.replace(b"logger = ", "ключ = 'é\u2028漢\t'\nlogger = ".encode()))
    assert len(cycle(site)) == 2


def test_no_newline_at_the_end(site: Path):
    """The anchored statement is the file's last: the line before ours gets a newline, and loses it again."""
    old = rewrite(site, SMALL_FILE, lambda data: data.rstrip(b"\n"))
    before = snapshot(site)
    ok("apply", *SMALL, site=site)
    assert added(site, old + b"\n")
    ok("revert", site=site)
    assert differences(before, site) == []


@pytest.mark.parametrize(
    ("change", "line", "why"),
    [
        (lambda data: b"\xef\xbb\xbf" + data, 1, "byte order mark"),
        (lambda data: data.replace(b"logger = ", b"\f\nlogger = "), 10, "form feed"),
        (lambda data: data.replace(b"logger = ", b"x = '\0'\nlogger = "), 10, "NUL"),
        (lambda data: data.replace(b"logger = ", b"x = 1\ry = 2\nlogger = "), 10, "carriage return"),
        (
            lambda data: b"# -*- coding: latin-1 -*-\n" + data.replace(b"logger = ", b"x = '\xe9'\nlogger = "),
            1,
            "encoding",
        ),
        (lambda data: b"#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\n" + data, 2, "encoding"),
        (lambda data: data.replace(b"logger = ", b"x = '\xe9'\nlogger = "), 10, "not UTF-8"),
        (lambda data: data.replace(b"logger = ", b"x = '\xed\xa0\x80'\nlogger = "), 10, "not UTF-8"),
    ],
    ids=["BOM", "form feed", "NUL", "lone CR", "latin-1", "cookie in line 2", "no UTF-8", "surrogate"],
)
def test_refused(site: Path, change, line: int, why: str):
    rewrite(site, SMALL_FILE, change)
    with untouched(site):
        result = tool("apply", "--json", *SMALL, site=site)
    assert result.exit == 4
    assert result.error["where"] == f"{site}/{SMALL_FILE}:{line}"
    assert why in result.error["why"]


def test_a_comment_that_only_talks_of_coding(site: Path):
    rewrite(site, SMALL_FILE, lambda data: b"# Decoding happens elsewhere.\n" + data)
    assert len(cycle(site)) == 2
