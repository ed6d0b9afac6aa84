"""Stopped at every step of apply, revert and upgrade: killed, interrupted, or refused by the file system.

After a kill, `status` tells the truth, and either command brings the tree to all-new or all-old.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from radiance_patch import record, registry
from tests.faults import sandbox
from tests.faults.older import EXTRA_FILE, older_tool
from tests.faults.sandbox import Snapshot, differences, ok, snapshot
from tests.faults.stepper import Stepper
from tests.real.tree import changes, without_bytecode

# Two targets in two folders, so that a stop between two files of vLLM is among the steps.
HUNKS = ("--only", "async_scheduler_cap", "--only", "engine_report")
TARGETS = (sandbox.SMALL_FILE, "vllm/v1/engine/core.py")
MEMORY = Path("/dev/shm")  # hundreds of trees are written and synced; a disk would take minutes


class Bench:
    """A place with the trees to start from, the tree to break, and the trees that may come out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stock = sandbox.small_tree(folder / "stock", also=[EXTRA_FILE])
        sandbox.compiled(self.stock)
        self.stock_state = snapshot(self.stock)
        self.new = self.copy(self.stock, "new")
        ok("apply", *HUNKS, site=self.new)
        sandbox.compiled(self.new / "vllm")  # as a server that ran does
        self.site = folder / "site"

    def copy(self, tree: Path, name: str) -> Path:
        """Copy a tree, times included, over whatever is there."""
        place = self.folder / name
        if place.exists():
            shutil.rmtree(place)
        return Path(shutil.copytree(tree, place, symlinks=True))

    def assert_stock(self, site: Path) -> None:
        assert differences(self.stock_state, site) == []

    def assert_new(self, site: Path) -> None:
        trees = [without_bytecode(snapshot(tree).tree) for tree in (self.new, site)]
        assert changes(*trees) == []
        for name in TARGETS:
            assert not [path for path in _bytecode(site / name) if _older(path, self.stock, site)], name


def _bytecode(source: Path) -> list[Path]:
    return sorted((source.parent / "__pycache__").glob(f"{source.stem}.*"))


def _older(cached: Path, stock: Path, site: Path) -> bool:
    """Whether a cached file is the one of the unpatched source."""
    twin = stock / cached.relative_to(site)
    return twin.exists() and twin.read_bytes() == cached.read_bytes()


@pytest.fixture
def bench() -> Iterator[Bench]:
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="radiance-patch-", dir=place) as folder:
        yield Bench(Path(folder))


@pytest.fixture
def stepper(bench: Bench) -> Iterator[Stepper]:
    with Stepper(bench.stock) as process:
        yield process


def assert_truthful(stepper: Stepper, bench: Bench, before: Snapshot) -> None:
    """`status` says applied only of the new tree, not applied only of an old one, else that it is neither."""
    answer = stepper.run("status", site=bench.site).exit
    if answer == 0:
        new, now = (without_bytecode(snapshot(tree).tree) for tree in (bench.new, bench.site))
        assert [line for line in changes(new, now) if "radiance-patch.journal" not in line] == []
    elif answer == 3:
        found = [differences(state, bench.site) for state in (before, bench.stock_state)]
        assert [] in [[line for line in lines if "radiance-patch.journal" not in line] for lines in found]
    else:
        assert answer == 5
        assert sandbox.journal(bench.site).is_dir()


def recover_both_ways(stepper: Stepper, bench: Bench, before: Snapshot) -> None:
    assert_truthful(stepper, bench, before)
    other = bench.copy(bench.site, "other")
    assert stepper.run("apply", *HUNKS, site=bench.site).exit == 0
    bench.assert_new(bench.site)
    assert stepper.run("revert", site=other).exit == 0
    bench.assert_stock(other)


def assert_harmless(site: Path, dropped: set[str]) -> None:
    """A process that starts here finds what it imports, and an uninstall leaves nothing of ours behind.

    dropped: the files that an upgrade is about to remove; RECORD lists them no more.
    """
    payload = {path.name for path in (site / "vllm/_radiance").glob("*.py") if not path.name.startswith(".")}
    if any(b"_radiance" in (site / name).read_bytes() for name in TARGETS):
        assert payload >= set(registry.payload())
    folder = sandbox.dist_info(site) / "radiance-patch"
    kept = {str(path.relative_to(site)) for path in folder.rglob("[!.]*") if path.is_file()}
    listed = record.rows((sandbox.dist_info(site) / "RECORD").read_bytes())
    assert ({f"vllm/_radiance/{name}" for name in payload} | kept) - listed.keys() - dropped == set()


def killed_everywhere(stepper: Stepper, bench: Bench, start: Path, *command: str) -> int:
    """Kill a command before each of its steps, recover each time; return how many steps it has."""
    before = snapshot(bench.copy(start, "site"))
    dropped = before.tree.keys() - snapshot(bench.new).tree.keys()
    steps = 0
    for result in stepper.every_step(*command, site=bench.site):
        steps += 1
        assert result.exit == (-9 if result.fired else 0), result
        assert_harmless(bench.site, dropped)
        recover_both_ways(stepper, bench, before)
        bench.copy(start, "site")
    return steps


def test_killed_at_every_step_of_apply(stepper: Stepper, bench: Bench):
    assert killed_everywhere(stepper, bench, bench.stock, "apply", *HUNKS) > 100


def test_killed_at_every_step_of_revert(stepper: Stepper, bench: Bench):
    assert killed_everywhere(stepper, bench, bench.new, "revert") > 50


def test_killed_at_every_step_of_an_upgrade(stepper: Stepper, bench: Bench):
    old = bench.copy(bench.stock, "old")
    run_older = older_tool(bench.folder / "older")
    assert run_older("apply", *HUNKS, "--only", "former_hunk", site=old).exit == 0
    assert stepper.run("status", site=old).exit == 3
    assert killed_everywhere(stepper, bench, old, "apply", *HUNKS) > 100


@pytest.mark.parametrize("command", ["apply", "revert"])
def test_killed_again_at_every_step_of_the_recovery(stepper: Stepper, bench: Bench, command: str):
    start, args = (bench.stock, ("apply", *HUNKS)) if command == "apply" else (bench.new, ("revert",))
    cut = deepest_cut(stepper, bench, start, *args)
    for result in stepper.every_step("revert", site=bench.copy(cut, "site")):
        assert result.exit == (-9 if result.fired else 0), result
        assert stepper.run("revert", site=bench.site).exit == 0
        bench.assert_stock(bench.site)
        bench.copy(cut, "site")


def deepest_cut(stepper: Stepper, bench: Bench, start: Path, *args: str) -> Path:
    """Return a tree that a command left when it was killed just before its commit."""
    found = False
    for _ in stepper.every_step(*args, site=bench.copy(start, "site")):
        if sandbox.journal(bench.site).is_dir():
            found = bool(bench.copy(bench.site, "cut"))
        elif found:
            break
        bench.copy(start, "site")
    return bench.folder / "cut"


@pytest.mark.parametrize(("command", "name"), [("apply", "SIGINT"), ("apply", "SIGHUP"), ("revert", "SIGTERM")])
def test_interrupted_at_every_step(stepper: Stepper, bench: Bench, command: str, name: str):
    start, args = (bench.stock, ("apply", *HUNKS)) if command == "apply" else (bench.new, ("revert",))
    before = snapshot(bench.copy(start, "site"))
    codes = []
    for result in stepper.every_step(*args, site=bench.site, action=name):
        codes.append(result.exit)
        if result.exit == 130:
            assert "interrupted" in result.err
            assert differences(before, bench.site) == []
        else:  # it came when all was done
            assert result.exit == 0, result
            assert stepper.run("status", site=bench.site).exit == (0 if command == "apply" else 3)
        bench.copy(start, "site")
    assert codes.count(130) > len(codes) * 0.8
    assert codes == sorted(codes, reverse=True), "an interrupt is honoured until the commit, and not after it"


@pytest.mark.parametrize(("command", "name"), [("apply", "ENOSPC"), ("revert", "EACCES")])
def test_an_error_at_every_step(stepper: Stepper, bench: Bench, command: str, name: str):
    start, args = (bench.stock, ("apply", *HUNKS)) if command == "apply" else (bench.new, ("revert",))
    before = snapshot(bench.copy(start, "site"))
    for result in stepper.every_step(*args, "--json", site=bench.site, action=name):
        if result.exit == 6:
            assert differences(before, bench.site) == []
            assert result.error["where"].startswith(str(bench.site))
            assert result.error["next"]
        else:  # it met the tidying up after the commit
            assert result.exit == 0, result
            assert stepper.run("status", site=bench.site).exit == (0 if command == "apply" else 3)
        bench.copy(start, "site")
