"""The harness itself: what is cached is made once and whole, and a write through a hard link does not go unseen."""

import multiprocessing
import os
import sys
import time
from pathlib import Path

import pytest

from tests.real import cache
from tests.real.releases import RELEASES, copy_tree, pristine
from tests.real.tree import changes, fingerprint, link_packages


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RADIANCE_PATCH_CACHE", str(tmp_path / "cache"))
    return cache.root()


def slow_build(folder: Path) -> None:
    time.sleep(0.2)
    with (folder.parent / "builds").open("a") as builds:
        builds.write("x")
    (folder / "file").write_text("whole")


def ensure_entry() -> None:
    assert (cache.ensure("entry", slow_build) / "file").read_text() == "whole"


def test_an_entry_is_built_by_one_process_of_many(own_cache):
    workers = [multiprocessing.get_context("spawn").Process(target=ensure_entry) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert (own_cache / "builds").read_text() == "x"


def test_a_build_that_fails_leaves_no_entry_and_is_tried_again(own_cache):
    def fails(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        cache.ensure("entry", fails)
    assert not (own_cache / "entry").exists()
    assert [path.name for path in cache.ensure("entry", slow_build).iterdir()] == ["file"]


def test_a_command_that_fails_shows_the_end_of_its_log(tmp_path):
    with pytest.raises(cache.HarnessError, match=r"(?s)a test ended with exit code 3.*the reason.*next:"):
        cache.run([sys.executable, "-c", "print('the reason'); exit(3)"], "a test", log=tmp_path / "log")


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path):
    alive = tmp_path / "alive"
    child = f"import time; time.sleep(3); open({str(alive)!r}, 'w')"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with pytest.raises(cache.HarnessError, match="took more than 1 s"):
        cache.run([sys.executable, "-c", parent], "a test", log=tmp_path / "log", timeout=1)
    time.sleep(3)
    assert not alive.exists()


def test_a_write_in_place_shows_in_the_tree_it_was_linked_from(tmp_path):
    source, dest = tmp_path / "source", tmp_path / "dest"
    (source / "vllm").mkdir(parents=True)
    (source / "vllm" / "a.py").write_text("a")
    (source / "x.dist-info").mkdir()
    (source / "x.dist-info" / "RECORD").write_text("rows")
    before = fingerprint(source)
    link_packages(source, dest, ["vllm", "x.dist-info"])
    assert changes(before, fingerprint(dest)) == []

    (dest / "x.dist-info" / "RECORD").write_text("other rows")
    assert changes(before, fingerprint(source)) == []
    (dest / "vllm" / "a.py").write_text("b")
    (line,) = changes(before, fingerprint(source))
    assert line.startswith("changed: vllm/a.py")


def test_every_kind_of_change_shows(tmp_path):
    (tmp_path / "kept").write_text("same")
    (tmp_path / "gone").touch()
    (tmp_path / "link").symlink_to("kept")
    (tmp_path / "script").touch(0o644)
    before = fingerprint(tmp_path)
    (tmp_path / "gone").unlink()
    (tmp_path / "link").unlink()
    (tmp_path / "link").write_text("same")
    (tmp_path / "script").chmod(0o755)
    (tmp_path / "new").mkdir()
    kinds = [line.split(": ")[:2] for line in changes(before, fingerprint(tmp_path))]
    assert kinds == [["added", "new"], ["changed", "link"], ["changed", "script"], ["removed", "gone"]]


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_a_copied_tree_is_the_published_one(release):
    with cache.scratch("harness") as folder:
        copied = copy_tree(release, folder)
        assert changes(pristine(release), fingerprint(copied)) == []
        assert (copied / "vllm" / "v1" / "core" / "sched" / "scheduler.py").stat().st_nlink > 1


@pytest.mark.xdist_group("harness")
def test_a_group_of_tests_is_known_to_the_workers(request):
    """Without it two workers wait for one engine, the second until the first has run everything."""
    grouped = request.node.nodeid.endswith("@harness")
    assert grouped == ("PYTEST_XDIST_WORKER" in os.environ)
