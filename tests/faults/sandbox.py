"""What every fault test needs: a tree to break, the real command line, and a comparison that misses nothing."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

from radiance_patch import record, registry, target
from tests.real.releases import Release, site_packages
from tests.real.tree import Fingerprint, changes, fingerprint

RELEASE = Release("vllm", "0.33.0")
# The smallest target file, and the hunk that is its only one: a fault needs no more, and each test is fast.
SMALL_FILE = "vllm/v1/core/sched/async_scheduler.py"
SMALL = ("--only", "async_scheduler_cap")
SCRIPT = Path(sys.executable).with_name("radiance-patch")


@dataclass(frozen=True)
class Result:
    """How a command ended: its exit code (negative: the signal), stdout and stderr."""

    exit: int
    out: str
    err: str

    @property
    def body(self) -> dict[str, Any]:
        """The JSON object on stdout."""
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, str]:
        """What the JSON object says of an expected failure: what, where, why, next."""
        assert self.body["exit"] == self.exit, self
        return self.body["error"]


def tool(
    *args: str | Path,
    site: Path | None = None,
    env: Mapping[str, str] | None = None,
    command: tuple[str | Path, ...] = (SCRIPT,),
    **more: Any,
) -> Result:
    """Run the installed command, with every warning an error; it may fail, but never with a traceback.

    No index is asked, unless `env` says so: a refusal would fetch what it compares with.
    """
    place = ("--target", site) if site else ()
    process = subprocess.run(
        [*command, *args, *place],
        capture_output=True,
        text=True,
        env=environment({"PIP_NO_INDEX": "1", **(env or {})}),
        timeout=300,
        check=False,
        **{"cwd": "/", **more},
    )
    result = Result(process.returncode, process.stdout, process.stderr)
    assert "Traceback" not in result.err, result.err
    assert result.exit != 70, result
    return result


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment in which no setting of the person who runs the tests has a say."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RADIANCE_"))}
    return {**kept, "PYTHONWARNINGS": "error", **(more or {})}


def ok(*args: str | Path, site: Path, **more: Any) -> Result:
    """Run a command that must end with 0."""
    result = tool(*args, site=site, **more)
    assert result.exit == 0, result
    return result


def targets(site: Path) -> set[str]:
    """Return the names of the files of a tree that are patched; older releases have less to patch."""
    return {f"vllm/{hunk.file}" for hunk in registry.at(registry.hunks(), target.find(site).public)}


def small_tree(site: Path, release: Release = RELEASE, also: Sequence[str] = ()) -> Path:
    """Make `site` a trimmed copy of a release: the target files, the version and the dist-info, with RECORD to match.

    also: further files to keep.
    """
    source = site_packages(release)
    (dist_info,) = source.glob("*.dist-info")
    files = targets(source) | {"vllm/__init__.py", "vllm/_version.py", *also}
    files |= {f"{dist_info.name}/{path.name}" for path in dist_info.iterdir() if path.is_file()}
    for name in files:
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source / name, site / name)
    rows = site / dist_info.name / "RECORD"
    kept = [line for line in rows.read_text().splitlines(keepends=True) if line.split(",")[0] in files]
    rows.write_text("".join(kept))
    return site


def dist_info(site: Path) -> Path:
    """Return the dist-info folder of vLLM."""
    (found,) = site.glob("vllm*.dist-info")
    return found


def journal(site: Path) -> Path:
    """Return where the journal of a cut off apply or revert lies."""
    return dist_info(site) / "radiance-patch.journal"


def rewrite(site: Path, name: str, change: Callable[[bytes], bytes]) -> bytes:
    """Change a file and its RECORD row, so that the tree is one that was published so; return the new content."""
    path = site / name
    old = path.read_bytes()
    new = change(old)
    assert new != old, f"the change of {name} changes nothing"
    path.unlink()  # the file may be a hard link into the cache
    path.write_bytes(new)
    seal(site, name)
    return new


def seal(site: Path, name: str) -> None:
    """Make the RECORD row of a file fit its content; a file that is gone loses its row."""
    path, rows = site / name, dist_info(site) / "RECORD"
    row = record.row(name, path.read_bytes()) if path.is_file() else None
    rows.write_bytes(record.edit(rows.read_bytes(), {name: row}))


def replace(old: str, new: str) -> Callable[[bytes], bytes]:
    """Return a change for `rewrite`: one occurrence of `old` becomes `new`."""

    def change(data: bytes) -> bytes:
        assert data.count(old.encode()) == 1, f"{data.count(old.encode())} times {old!r}"
        return data.replace(old.encode(), new.encode())

    return change


def set_version(site: Path, version: str) -> None:
    """Make the code on disk say that it is another version."""
    rewrite(site, "vllm/_version.py", replace(f"version = '{RELEASE.version}'", f"version = '{version}'"))


@dataclass(frozen=True)
class Snapshot:
    """A whole tree: content, mode and kind of every path, and the times of all files, in nanoseconds."""

    tree: Fingerprint
    times: dict[str, int]


def snapshot(site: Path) -> Snapshot:
    """Take a snapshot of a tree."""
    files = {path for path in site.rglob("*") if path.is_symlink() or path.is_file()}
    return Snapshot(fingerprint(site), {str(path.relative_to(site)): path.lstat().st_mtime_ns for path in files})


def differences(before: Snapshot, site: Path) -> list[str]:
    """Return one line for each path that is not as it was; a link's own time does not count."""
    after = snapshot(site)
    late = [
        f"time of {name}"
        for name in before.times.keys() & after.times.keys()
        if before.times[name] != after.times[name] and not (site / name).is_symlink()
    ]
    return changes(before.tree, after.tree) + late


@contextmanager
def untouched(site: Path) -> Iterator[None]:
    """Assert that a block changes nothing in a tree: no byte, mode, time or inode."""
    before, inodes = snapshot(site), stamps(site)
    yield
    assert differences(before, site) == []
    assert stamps(site) == inodes


def stamps(site: Path) -> dict[str, tuple[int, int]]:
    """Return inode and time of change of every file: neither survives a write, even of the same bytes."""
    return {str(path): (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in site.rglob("*") if path.is_file()}


def false_rows(site: Path) -> list[str]:
    """Return the files that RECORD, as importlib.metadata reads it, lists with a hash or a size they do not have.

    A listed file that is not there is none of them: the trees hold no compiled libraries, and Python's own
    caches come and go.
    """
    wrong = []
    for file in PathDistribution(dist_info(site)).files or []:
        path = site / file
        if file.hash is None or not path.is_file():
            continue
        data = path.read_bytes()
        if f"{file.hash.mode}={file.hash.value}" != record.digest(data) or file.size not in (None, len(data)):
            wrong.append(str(file))
    return wrong


def ours(site: Path) -> list[Path]:
    """Return every path of the patch's own."""
    return sorted(path for path in site.rglob("*") if "radiance" in path.name)


def compiled(site: Path, *options: str) -> None:
    """Compile every file of a tree, as pip does when it installs one."""
    compileall = [sys.executable, *options, "-m", "compileall", "-q", site]
    subprocess.run(compileall, check=True, env={**environment(), "PYTHONWARNINGS": "ignore"})


def can(command: str) -> bool:
    """Whether a command that needs a privilege works here; the tests that need it say why they are skipped."""
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=False).returncode == 0
