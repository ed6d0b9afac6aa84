"""Files shared with a package manager's cache, or with another tree: their twins stay as they are."""

import os
import shutil
from pathlib import Path

import pytest

from tests.faults.sandbox import SMALL, SMALL_FILE, differences, ok, small_tree, snapshot, tool, untouched


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    """Return a package manager's cache, from which environments are made."""
    return small_tree(tmp_path / "cache")


def environment_of(cached: Path, site: Path, how: str) -> Path:
    """Make an environment as uv does in its link modes; RECORD is always the environment's own."""
    for path in sorted(cached.rglob("*")):
        place = site / path.relative_to(cached)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        elif path.name == "RECORD" or how == "copy":
            shutil.copy2(path, place)
        elif how == "hardlink":
            os.link(path, place)
        else:
            place.symlink_to(path)
    return site


@pytest.mark.parametrize("how", ["hardlink", "symlink", "copy"])
def test_the_twin_stays_pristine(cached: Path, tmp_path: Path, how: str):
    first, second = (environment_of(cached, tmp_path / name, how) for name in ("first", "second"))
    cache_before, before = snapshot(cached), snapshot(first)
    with untouched(second):
        ok("apply", site=first)
        assert differences(cache_before, cached) == []
        ok("status", site=first)
        assert tool("status", site=second).exit == 3
        assert not (first / SMALL_FILE).is_symlink()
        ok("revert", site=first)
    assert differences(cache_before, cached) == []
    assert differences(before, first) == []
    assert (first / SMALL_FILE).is_symlink() == (how == "symlink")


def test_two_environments_are_patched_each_by_itself(cached: Path, tmp_path: Path):
    first, second = (environment_of(cached, tmp_path / name, "hardlink") for name in ("first", "second"))
    before = snapshot(second)
    ok("apply", *SMALL, site=first)
    ok("apply", *SMALL, site=second)
    ok("revert", site=second)
    ok("status", site=first)
    assert differences(before, second) == []


def test_a_link_that_leads_nowhere(site: Path, tmp_path: Path):
    (site / SMALL_FILE).unlink()
    (site / SMALL_FILE).symlink_to(tmp_path / "gone")
    with untouched(site):
        result = tool("apply", "--json", site=site)
    assert result.exit == 5
    assert result.error["where"] == f"{site}/{SMALL_FILE}"


@pytest.mark.parametrize("folder", ["vllm/v1", "vllm/v1/core/sched"])
def test_a_folder_of_vllm_is_a_link_out_of_it(site: Path, tmp_path: Path, folder: str):
    shutil.move(site / folder, tmp_path / "elsewhere")
    (site / folder).symlink_to(tmp_path / "elsewhere")
    before = snapshot(tmp_path / "elsewhere")
    with untouched(site):
        for command in ("apply", "status"):
            result = tool(command, "--json", site=site)
            assert result.exit == 5, result
            assert str(tmp_path / "elsewhere") in result.out
    assert differences(before, tmp_path / "elsewhere") == []


def test_the_payload_folder_is_a_link(site: Path, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    (site / "vllm/_radiance").symlink_to(tmp_path / "elsewhere")
    with untouched(site):
        assert tool("apply", "--json", *SMALL, site=site).exit == 5
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_vllm_itself_is_a_link(site: Path, tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "vllm").symlink_to(site / "vllm")
    with untouched(site):
        result = tool("apply", "--json", site=other)
    assert result.exit == 1
    assert result.error["where"] == f"{other}/vllm"
    assert result.error["next"] == f"radiance-patch apply --target {site}"


def test_a_link_to_the_whole_environment_is_fine(site: Path, tmp_path: Path):
    """/usr/lib64 -> /usr/lib and the like: nothing is shared that is not meant."""
    (tmp_path / "lib64").symlink_to(site)
    ok("apply", *SMALL, site=tmp_path / "lib64")
    ok("status", site=site)


@pytest.mark.parametrize("mode", [0o600, 0o444, 0o755, 0o664])
def test_modes_are_kept(site: Path, mode: int):
    (site / SMALL_FILE).chmod(mode)
    before = snapshot(site)
    ok("apply", *SMALL, site=site)
    assert (site / SMALL_FILE).stat().st_mode & 0o7777 == mode
    ok("revert", site=site)
    assert differences(before, site) == []


def test_a_strict_umask_hides_nothing(site: Path):
    """The server may run as another user than the one who patches."""
    ok("apply", *SMALL, site=site, preexec_fn=lambda: os.umask(0o077))
    modes = {path.name: path.stat().st_mode & 0o777 for path in site.rglob("*") if path.name != "originals"}
    assert {mode for name, mode in modes.items() if (site / "vllm/_radiance" / name).is_file()} == {0o644}
    assert modes["_radiance"] == (site / "vllm").stat().st_mode & 0o777
    assert modes["state.json"] == 0o644


def test_extended_attributes_are_kept(site: Path):
    path = site / SMALL_FILE
    try:
        os.setxattr(path, "user.origin", b"a label")
    except OSError:
        return  # a file system without them has nothing to lose
    ok("apply", *SMALL, site=site)
    assert os.getxattr(path, "user.origin") == b"a label"
