"""Apply, status, apply, revert on every release: the patch comes and goes without a trace."""

from pathlib import Path

import pytest

from radiance_patch import registry
from tests.faults.sandbox import (
    SMALL,
    Snapshot,
    differences,
    false_rows,
    ok,
    snapshot,
    stamps,
    targets,
    tool,
    untouched,
)
from tests.real.releases import RELEASES, Release, copy_tree, site_packages


def assert_only_our_lines(before: Path, after: Path) -> None:
    """Every target differs by whole inserted lines, and each of them is a hunk's or the import of the payload."""
    texts = [line for hunk in registry.hunks() for variant in hunk.variants for line in variant.edit.text.splitlines()]
    expected = {text.strip().encode() for text in texts}
    for name in targets(before):
        left = (before / name).read_bytes().splitlines(keepends=True)[::-1]
        added = []
        for line in (after / name).read_bytes().splitlines(keepends=True):
            if left and left[-1] == line:
                left.pop()
            else:
                added.append(line.split(b"  # radiance-patch: ")[0].strip())
        assert left == [], name
        assert added, name
        assert [line for line in added if line not in expected and b"from vllm._radiance import " not in line] == []


def assert_nothing_else_changed(before: Snapshot, site: Path) -> None:
    patched = targets(site)
    for line in differences(before, site):
        name = line.split(": ")[1] if ": " in line else line.removeprefix("time of ")
        assert name in patched or name.endswith("/RECORD") or "radiance" in name, line


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_a_cycle_leaves_no_trace(release: Release, beside_cache: Path):
    site = copy_tree(release, beside_cache)
    before = snapshot(site)
    assert tool("status", site=site).exit == 3
    assert false_rows(site) == []

    ok("apply", site=site)
    assert false_rows(site) == []
    assert_only_our_lines(site_packages(release), site)
    assert_nothing_else_changed(before, site)
    status = ok("status", "--json", site=site).body
    assert {hunk["state"] for hunk in status["hunks"]} <= {"applied", "upstreamed"}

    with untouched(site):
        assert "nothing written" in ok("apply", site=site).out

    ok("revert", site=site)
    assert differences(before, site) == []
    assert false_rows(site) == []
    # The cached twin of every file is the same inode as before the first write, with the content it had.
    assert snapshot(site_packages(release)) == before


def test_every_file_of_ours_is_listed_in_record(site: Path):
    ok("apply", site=site)
    (rows,) = site.glob("*.dist-info/RECORD")
    listed = {line.split(",")[0] for line in rows.read_text().splitlines()}
    files = {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()}
    assert any("radiance" in name for name in files)
    assert files - listed == set()


def test_apply_is_visible_in_status_and_check(site: Path):
    assert tool("apply", "--check", site=site).exit == 3
    ok("apply", site=site)
    with untouched(site):
        ok("apply", "--check", site=site)
        ok("status", site=site)
    ok("revert", site=site)
    with untouched(site):
        assert tool("status", site=site).exit == 3
        assert "nothing written" in ok("revert", site=site).out


def test_a_dry_run_writes_nothing(site: Path):
    with untouched(site):
        assert tool("apply", "--check", site=site).exit == 3
        diff = ok("apply", "--diff", site=site).out
    assert diff.count("\n+++ ") == len(targets(site))
    assert not [line for line in diff.splitlines() if line.startswith("-") and not line.startswith("---")]


def test_another_row_in_record_survives_revert(patched: Path):
    (rows,) = patched.glob("*.dist-info/RECORD")
    with rows.open("a") as file:
        file.write("vllm/plugin_of_someone.py,,\n")
    ok("status", site=patched)
    ok("revert", site=patched)
    text = rows.read_text()
    assert text.endswith("vllm/plugin_of_someone.py,,\n")
    assert "radiance" not in text
    assert false_rows(patched) == []


@pytest.mark.parametrize("ending", ["\r\n", "\n"], ids=["CRLF", "LF"])
@pytest.mark.parametrize("terminated", [True, False], ids=["terminated", "last row unterminated"])
def test_record_keeps_every_byte_of_its_own(site: Path, ending: str, terminated: bool):
    (rows,) = site.glob("*.dist-info/RECORD")
    text = rows.read_text().replace("\n", ending)
    rows.write_bytes((text if terminated else text.removesuffix(ending)).encode())
    before = snapshot(site)
    ok("apply", *SMALL, site=site)
    assert false_rows(site) == []
    data = rows.read_bytes()
    assert data.count(b"\n") == data.count(ending.encode())
    assert data.endswith(ending.encode()) == terminated
    ok("revert", site=site)
    assert differences(before, site) == []


def test_record_with_mixed_line_endings(site: Path):
    """A tool that appends rows with its own line ending is no rarity; both kinds are one row each."""
    (rows,) = site.glob("*.dist-info/RECORD")
    lines = rows.read_text().splitlines()
    rows.write_bytes(b"".join(line.encode() + (b"\r\n" if n % 2 else b"\n") for n, line in enumerate(lines)))
    before = snapshot(site)
    ok("apply", *SMALL, site=site)
    assert false_rows(site) == []
    names = [line.split(",")[0] for line in rows.read_text().splitlines()]
    assert len(names) == len(set(names))
    ok("revert", site=site)
    assert differences(before, site) == []


def test_stamps_see_a_rewrite_of_the_same_bytes(site: Path):
    """The check that apply writes nothing a second time can fail."""
    before = stamps(site)
    path = site / "vllm/__init__.py"
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    assert stamps(site) != before
