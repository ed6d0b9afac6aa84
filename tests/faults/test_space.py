"""No space, no permission, nothing writable: exit 6, which file and why, and not one byte changed."""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.sandbox import (
    SCRIPT,
    SMALL,
    SMALL_FILE,
    Result,
    can,
    differences,
    dist_info,
    environment,
    ok,
    small_tree,
    snapshot,
    tool,
    untouched,
)

NOBODY = 65534
# Continuous integration runs these as root: there a skip is a failure, see the last test.
MOUNTS = can("unshare -m true")
ATTRIBUTES = can("f=$(mktemp) && chattr +i $f && chattr -i $f && rm $f")
needs_mounts = pytest.mark.skipif(not MOUNTS, reason="a mount namespace needs a privilege that is not held here")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
needs_attributes = pytest.mark.skipif(not ATTRIBUTES, reason="this file system or user cannot make a file immutable")


@pytest.mark.parametrize("limit", [1, 1000, 4000, 20_000])
@pytest.mark.parametrize("command", ["apply", "revert"])
def test_a_write_is_cut_short(site: Path, command: str, limit: int):
    """The file size limit cuts a file in the middle, which a full disk does only sometimes."""
    if command == "revert":
        ok("apply", site=site)
    else:
        assert max(path.stat().st_size for path in site.rglob("*.py")) > limit
    before = snapshot(site)

    def cap() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    # CPython 3.11 keeps bytecode that is cut short, of the tool itself too, and every later import of it fails.
    result = tool(command, "--json", site=site, preexec_fn=cap, env={"PYTHONDONTWRITEBYTECODE": "1"})
    assert result.exit == 6
    assert result.error["why"] == "File too large"
    assert "ulimit -f" in result.error["next"]
    assert result.error["where"].startswith(str(site))
    assert differences(before, site) == []


def mounted(script: str, site: Path, *args: str) -> Result:
    """Run a script that mounts something, then the command, in a mount namespace of their own."""
    shell = f'set -e; {script}; exec "{SCRIPT}" "$@"'
    command = ("unshare", "-m", "/bin/sh", "-c", shell, "radiance-patch")
    return tool(*args, "--json", site=site, command=command)


@needs_mounts
@pytest.mark.parametrize("command", ["apply", "revert"])
def test_a_read_only_file_system(site: Path, command: str):
    if command == "revert":
        ok("apply", *SMALL, site=site)
    with untouched(site):
        result = mounted(f'mount --bind "{site}" "{site}"; mount -o remount,ro,bind "{site}"', site, command)
    assert result.exit == 6
    assert result.error["why"] == "Read-only file system"
    assert "before the file system is made read-only" in result.error["next"]


@needs_mounts
def test_a_read_only_file_system_that_is_patched_already(patched: Path):
    script = f'mount --bind "{patched}" "{patched}"; mount -o remount,ro,bind "{patched}"'
    with untouched(patched):
        assert mounted(script, patched, "status").exit == 0
        assert mounted(script, patched, "apply", *SMALL).exit == 0


@needs_mounts
@pytest.mark.parametrize("kilobytes", [0, 8, 64, 400, 800])
def test_no_space(tmp_path: Path, kilobytes: int):
    """A small file system of its own, with little left: in the journal, in the originals, in the new files."""
    site, result = tmp_path / "site", tmp_path / "result"
    small_tree(site)
    size = sum((path.stat().st_size + 4095) // 4096 * 4 for path in site.rglob("*")) + kilobytes
    script = (
        f'mount -t tmpfs -o size={size}k tmpfs "{result.parent}/mnt"; cp -a "{site}" "{result.parent}/mnt/site"; '
        f'find "{result.parent}/mnt/site" -type f | sort | xargs sha256sum > before'
    )
    (tmp_path / "mnt").mkdir()
    shell = (
        f'set -e; cd "{tmp_path}"; {script}; set +e; "{SCRIPT}" apply --json --target "$PWD/mnt/site" > result; '
        f'code=$?; find "$PWD/mnt/site" -type f | sort | xargs sha256sum > after; df -k mnt > df; exit $code'
    )
    process = subprocess.run(
        ["unshare", "-m", "/bin/sh", "-c", shell], capture_output=True, text=True, env=environment(), check=False
    )
    assert "Traceback" not in process.stderr
    found = Result(process.returncode, result.read_text(), process.stderr)
    assert found.exit == 6, found
    assert found.error["why"] == "No space left on device"
    assert "free some space" in found.error["next"]
    assert (tmp_path / "before").read_text() == (tmp_path / "after").read_text()


@pytest.fixture
def open_tmp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder that every user can reach; pytest's own are closed."""
    with tempfile.TemporaryDirectory(prefix="radiance-patch-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def give_to(site: Path, user: int) -> None:
    for path in [site, *site.rglob("*")]:
        os.chown(path, user, user)


@pytest.fixture
def nobody(open_tmp: Path) -> Callable[..., Result]:
    """Return `tool` for a user without rights, with a copy of the tool that this user can read."""
    program = open_tmp / "run.py"
    program.write_text(
        "import os, sys\n"
        "from radiance_patch import cli, plan, registry, state, target\n"
        "registry.module('settings'), registry.payload()\n"
        "found = target.find(sys.argv[-1])\n"
        "plan.for_apply(found, registry.hunks(), state.load(found))  # all of Python that it needs is imported\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "cli.main()\n"
    )

    def run(*args: str, site: Path) -> Result:
        return tool(*args, "--json", site=site, command=(sys.executable, program))

    return run


@needs_root
@pytest.mark.parametrize("folder", ["vllm/v1/core/sched", "vllm", "."])
def test_a_read_only_folder(open_tmp: Path, nobody: Callable[..., Result], folder: str):
    """The environment is the user's own but for one folder, as after a `sudo pip install`."""
    site = small_tree(open_tmp / "site")
    give_to(site, NOBODY)
    place = dist_info(site) if folder == "." else site / folder
    os.chown(place, 0, 0)
    with untouched(site):
        result = nobody("apply", *SMALL, site=site)
    assert result.exit == 6
    assert result.error["why"] == "Permission denied"
    assert Path(result.error["where"]).parent == place
    assert "as the user who owns the environment" in result.error["next"]


@needs_root
def test_another_users_files(open_tmp: Path, nobody: Callable[..., Result]):
    """One may replace a file of another user in a folder of one's own, but not so that it stays that user's."""
    site = small_tree(open_tmp / "site")
    give_to(site, NOBODY)
    os.chown(site / SMALL_FILE, 0, 0)
    with untouched(site):
        result = nobody("apply", *SMALL, site=site)
    assert result.exit == 6
    assert result.error["where"] == f"{site}/{SMALL_FILE}"


@needs_root
def test_another_users_file_in_a_sticky_folder(open_tmp: Path, nobody: Callable[..., Result]):
    site = small_tree(open_tmp / "site")
    give_to(site, NOBODY)
    folder = (site / SMALL_FILE).parent
    os.chown(folder, 0, 0)
    os.chown(site / SMALL_FILE, 0, 0)
    folder.chmod(0o1777)
    with untouched(site):
        assert nobody("apply", *SMALL, site=site).exit == 6


@needs_root
def test_a_file_that_one_may_not_read(open_tmp: Path, nobody: Callable[..., Result]):
    site = small_tree(open_tmp / "site")
    give_to(site, NOBODY)
    os.chown(site / SMALL_FILE, 0, 0)
    (site / SMALL_FILE).chmod(0o600)
    with untouched(site):
        for command in ("apply", "status"):
            result = nobody(command, site=site)
            assert result.exit == 6
            assert result.error["where"] == f"{site}/{SMALL_FILE}"


@needs_root
def test_a_patch_that_root_made_can_be_read_and_stays_the_owners(open_tmp: Path, nobody: Callable[..., Result]):
    site = small_tree(open_tmp / "site")
    give_to(site, NOBODY)

    def strict() -> None:
        os.umask(0o077)

    ok("apply", *SMALL, site=site, preexec_fn=strict)
    assert {(path.stat().st_uid, path.stat().st_gid) for path in site.rglob("*")} == {(NOBODY, NOBODY)}
    assert nobody("status", site=site).exit == 0
    assert nobody("revert", site=site).exit == 0


@needs_attributes
@pytest.mark.parametrize("command", ["apply", "revert"])
def test_an_immutable_file(site: Path, command: str):
    if command == "revert":
        ok("apply", *SMALL, site=site)
    path, before = site / SMALL_FILE, snapshot(site)
    subprocess.run(["chattr", "+i", path], check=True)
    try:
        result = tool(command, "--json", *(SMALL if command == "apply" else ()), site=site)
    finally:
        subprocess.run(["chattr", "-i", path], check=True)
    assert differences(before, site) == []
    assert result.exit == 6
    assert result.error["where"] == str(path)
    assert result.error["why"] == "Operation not permitted"


@pytest.mark.parametrize("command", ["status", "apply", "revert", "list", "doctor"])
def test_stdout_is_full(patched: Path, command: str):
    """The result cannot be told; that is no reason for a traceback."""
    place = [] if command == "list" else ["--target", str(patched)]
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [SCRIPT, command, *place], stdout=full, stderr=subprocess.PIPE, text=True, env=environment(), check=False
        )
    assert "Traceback" not in process.stderr
    assert "Exception ignored" not in process.stderr
    assert process.returncode in (1, 6), process


def test_nothing_is_skipped_where_all_tests_must_run():
    """In continuous integration, a test of this file that cannot run is a failure."""
    if os.environ.get("CI") == "true":
        assert MOUNTS
        assert ATTRIBUTES
        assert os.geteuid() == 0
