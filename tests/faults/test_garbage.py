"""Whatever is typed, and whatever the target is: an exit code of ours, and never a traceback."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.faults.sandbox import RELEASE, SMALL_FILE, dist_info, ok, small_tree, snapshot, tool
from tests.faults.stepper import Stepper

KNOWN = {0, 1, 2, 3, 4, 5, 6}
WORDS = ["apply", "status", "revert", "list", "doctor", "--json", "--check", "--diff", "--only", "--target", "-h"]
WORDS += [
    "--lock-timeout",
    "--accept-unreviewed",
    "--version",
    "nan",
    "-1",
    "1e999",
    "",
    ".",
    "/",
    "/dev/null",
    "\udcff",
]


@pytest.fixture(scope="module")
def stepper(tmp_path_factory: pytest.TempPathFactory):
    site = small_tree(tmp_path_factory.mktemp("garbage") / "site")
    with Stepper(site) as process:
        yield process


typed = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(args=st.lists(st.sampled_from(WORDS) | typed, max_size=6))
def test_any_arguments(stepper: Stepper, tmp_path: Path, args: list[str]):
    """The target comes last, so that what is typed is never done to a real place."""
    assert stepper.run(*args, site=tmp_path).exit in KNOWN


@pytest.mark.parametrize(
    "place", ["", "x" * 300, "x/" * 3000, "/dev/null", "/proc/self/mem", "/etc/passwd/x", "/dev/tty"]
)
def test_any_target(place: str):
    assert tool("status", "--json", "--target", place).exit in KNOWN


def test_a_target_that_is_no_text(tmp_path: Path):
    folder = tmp_path / os.fsdecode(b"\xff\xfe")
    folder.mkdir()
    for args in (("status",), ("status", "--json")):
        assert tool(*args, site=folder).exit == 1


def files_of(site: Path) -> list[str]:
    return [
        SMALL_FILE,
        "vllm/_version.py",
        "vllm/__init__.py",
        *(f"{dist_info(site).name}/{n}" for n in ("RECORD", "METADATA")),
    ]


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("how", ["a folder", "a loop", "a device", "empty", "noise"])
def test_any_file(site: Path, number: int, how: str):
    """One file of the installation is something else altogether."""
    path = site / files_of(site)[number]
    path.unlink()
    if how == "a folder":
        path.mkdir()
    elif how == "a loop":
        path.symlink_to(path)
    elif how == "a device":
        path.symlink_to("/dev/null")
    else:
        path.write_bytes(b"" if how == "empty" else bytes(range(256)) * 20)
    for command in ("status", "apply", "revert", "doctor"):
        result = tool(command, "--json", site=site)
        assert result.exit in KNOWN, result
        assert result.body["exit"] == result.exit


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_to_a_patched_tree(stepper: Stepper, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    """Flip, cut or drop anything that apply left: status never says 0 of a changed file, and nobody falls over."""
    base = tmp_path_factory.getbasetemp() / f"damaged-{RELEASE}"
    if not base.exists():
        ok("apply", "--only", "async_scheduler_cap", site=small_tree(base))
    site = Path(shutil.copytree(base, tmp_path_factory.mktemp("damage") / "site"))
    paths = [
        path
        for path in sorted(site.rglob("*"))
        if path.is_file() and ("radiance" in str(path.relative_to(site)) or path == site / SMALL_FILE)
    ]
    path = data.draw(st.sampled_from(paths))
    content = path.read_bytes()
    place = data.draw(st.integers(0, max(0, len(content) - 1)))
    how = data.draw(st.sampled_from(["flip", "cut", "drop"]))
    if how == "drop":
        path.unlink()
    elif content:
        damaged = content[:place] + (bytes([content[place] ^ 1]) + content[place + 1 :] if how == "flip" else b"")
        path.write_bytes(damaged)
    before = snapshot(site)
    if how == "drop" or content:
        assert stepper.run("status", "--json", site=site).exit in {3, 5}
    assert snapshot(site) == before
    for command in ("apply", "revert"):
        assert stepper.run(command, "--json", site=site).exit in KNOWN
