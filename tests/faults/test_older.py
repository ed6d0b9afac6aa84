"""An older radiance-patch's patch is in place: it is upgraded from the stored originals, never skipped."""

from pathlib import Path

import pytest

from tests.faults.older import EXTRA_FILE, older_tool
from tests.faults.sandbox import compiled, differences, ok, small_tree, snapshot, tool, untouched
from tests.real.tree import without_bytecode


@pytest.fixture
def stock(tmp_path: Path) -> Path:
    """Return a trimmed, compiled tree that holds the file which only the older one patches."""
    site = small_tree(tmp_path / "site", also=[EXTRA_FILE])
    compiled(site)
    return site


def test_an_upgrade_gives_the_bytes_of_a_fresh_apply(stock: Path, tmp_path: Path):
    before = snapshot(stock)
    ok("apply", site=stock)
    fresh = snapshot(stock).tree
    ok("revert", site=stock)

    assert older_tool(tmp_path / "older")("apply", site=stock).exit == 0
    assert b"former_hunk" in (stock / EXTRA_FILE).read_bytes()
    assert (stock / "vllm/_radiance/former.py").is_file()
    compiled(stock / "vllm")

    with untouched(stock):
        status = tool("status", "--json", site=stock)
        assert status.exit == 3
        assert "0.0." in status.body["summary"]
        problem = status.body["problems"][0]
        assert all(name in problem for name in ("async_scheduler_cap", "scheduler_observe", "former_hunk"))
        assert tool("apply", "--check", site=stock).exit == 3

    assert "written" in ok("apply", site=stock).out
    assert without_bytecode(snapshot(stock).tree) == without_bytecode(fresh)
    ok("status", site=stock)
    with untouched(stock):
        ok("apply", site=stock)
    ok("revert", site=stock)
    assert differences(before, stock) == []


def test_an_older_patch_is_taken_out_by_the_newer_tool(stock: Path, tmp_path: Path):
    before = snapshot(stock)
    assert older_tool(tmp_path / "older")("apply", site=stock).exit == 0
    ok("revert", site=stock)
    assert differences(before, stock) == []


def test_fewer_hunks_than_before(stock: Path):
    """`--only` after an apply of all puts the other files back as they were, their bytecode too."""
    before = snapshot(stock)
    ok("apply", "--only", "async_scheduler_cap", site=stock)
    few = snapshot(stock).tree
    ok("revert", site=stock)
    ok("apply", site=stock)
    ok("apply", "--only", "async_scheduler_cap", site=stock)
    assert snapshot(stock).tree == few
    ok("revert", site=stock)
    assert differences(before, stock) == []
