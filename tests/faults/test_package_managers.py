"""pip and uv install, upgrade and uninstall vLLM over the patch: they find all of our files, and leave none."""

import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.sandbox import SCRIPT, compiled, dist_info, environment, false_rows, ok, ours, small_tree, tool
from tests.real.releases import Release

Manager = Callable[..., subprocess.CompletedProcess[str]]
OLD, NEW = Release("vllm", "0.32.0"), Release("vllm", "0.33.0")


def wheel(release: Release, folder: Path) -> Path:
    """Pack the trimmed tree of a release as the wheel it came from, without what it requires."""
    site = small_tree(folder / str(release), release)
    metadata = dist_info(site) / "METADATA"
    lines = [line for line in metadata.read_text().splitlines(True) if not line.startswith("Requires-Dist")]
    metadata.write_text("".join(lines))
    rows = dist_info(site) / "RECORD"
    kept = [line for line in rows.read_text().splitlines(True) if "METADATA" not in line and "entry_points" not in line]
    rows.write_text("".join(kept))
    path = folder / f"vllm-{release.version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(site.rglob("*")):
            if file.is_file() and file.name != "entry_points.txt":
                archive.write(file, file.relative_to(site))
    (wheel_file,) = site.glob("*.dist-info/WHEEL")
    assert wheel_file.is_file()
    return path


@pytest.fixture(params=["pip", "uv"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Manager:
    """Return the function that runs a package manager's command on an environment of its own."""
    home = tmp_path / "env"
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"

    def run(*args: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        if request.param == "uv":
            command = [SCRIPT.with_name("uv"), "pip", *args, "--python", python]
        else:
            command = [sys.executable, "-m", "pip", "--python", python, *args]
        env = {**environment(), "UV_CACHE_DIR": str(tmp_path / "uv-cache"), "PYTHONWARNINGS": "ignore"}
        return subprocess.run(command, capture_output=True, text=True, check=check, env=env)

    run.uninstall = ("uninstall", *(("-y",) if request.param == "pip" else ()), "vllm")
    run.site = next(home.glob("lib/python3*/site-packages"))
    return run


def install(manager: Manager, path: Path, *more: str) -> None:
    done = manager("install", "--no-deps", "--no-index", *more, path)
    assert done.returncode == 0, done.stderr


def left(site: Path) -> list[Path]:
    return [path for path in site.rglob("*") if "radiance" in str(path.relative_to(site)) or "vllm" in path.name]


def test_upgrade_over_the_patch(manager: Manager, tmp_path: Path):
    site = manager.site
    install(manager, wheel(OLD, tmp_path))
    assert manager("check").returncode == 0
    ok("apply", site=site)
    compiled(site / "vllm")
    assert manager("check").returncode == 0
    assert false_rows(site) == []

    install(manager, wheel(NEW, tmp_path), "--upgrade")
    assert ours(site) == []
    assert manager("check").returncode == 0
    assert tool("status", "--json", site=site).body["target"]["version"] == NEW.version
    ok("apply", site=site)
    ok("status", site=site)
    ok("revert", site=site)
    assert ours(site) == []
    assert false_rows(site) == []
    assert manager("check").returncode == 0


def test_uninstall_over_the_patch(manager: Manager, tmp_path: Path):
    site = manager.site
    install(manager, wheel(NEW, tmp_path))
    ok("apply", site=site)
    compiled(site / "vllm")
    assert manager(*manager.uninstall).returncode == 0
    assert left(site) == []
    assert manager("check").returncode == 0


def test_reinstall_brings_vllm_back(manager: Manager, tmp_path: Path):
    """What every message about a damaged patch advises must help."""
    site = manager.site
    path = wheel(NEW, tmp_path)
    install(manager, path)
    ok("apply", site=site)
    (dist_info(site) / "radiance-patch" / "state.json").write_text("damaged")
    assert tool("status", site=site).exit == 5
    install(manager, path, "--force-reinstall")
    assert ours(site) == []
    assert tool("status", site=site).exit == 3


def test_the_cache_of_uv_stays_pristine(tmp_path: Path):
    """A second environment made from the same cache after the patch has vLLM's own files."""
    packed = wheel(NEW, tmp_path)
    sites = []
    for name in ("first", "second"):
        venv.create(tmp_path / name, symlinks=True)
        env = {**environment(), "UV_CACHE_DIR": str(tmp_path / "uv-cache")}
        python = tmp_path / name / "bin" / "python"
        command = [SCRIPT.with_name("uv"), "pip", "install", "-q", "--no-deps", "--no-index", "--link-mode", "hardlink"]
        subprocess.run([*command, "--python", python, packed], check=True, env=env)
        sites.append(next((tmp_path / name).glob("lib/python3*/site-packages")))
        assert tool("status", site=sites[-1]).exit == 3
        ok("apply", site=sites[-1])
    ok("revert", site=sites[0])
    ok("status", site=sites[1])
    assert shutil.which("sh")
