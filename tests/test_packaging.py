"""What is built and installed: the same hunks and payload, however radiance-patch comes."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import uv

from tests.faults import sandbox

ROOT = Path(__file__).parents[1]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "radiance_patch", "hunks", "kernels")
FOLDERS = {"hunks": "radiance_patch/hunks", "kernels": "radiance_patch/kernels", "radiance_patch": "radiance_patch"}


def modules(suffix=".py"):
    """Every module of the repository's three folders, by where it belongs once installed."""
    return {f"{place}/{path.name}" for folder, place in FOLDERS.items() for path in (ROOT / folder).glob(f"*{suffix}")}


def run_uv(*arguments):
    """Run uv; setuptools talks through warnings, so here they are none of ours."""
    env = {name: value for name, value in sandbox.environment().items() if name != "PYTHONWARNINGS"}
    command = [uv.find_uv_bin(), *map(str, arguments), "--quiet"]
    result = subprocess.run(command, cwd="/", capture_output=True, text=True, env=env, check=False)
    assert result.returncode == 0, result.stderr


def install(folder, *what):
    """Make an environment of the running Python with `what` in it."""
    run_uv("venv", "--python", sys.executable, folder)
    # Copies: what a test breaks here must not be broken in uv's cache.
    run_uv("pip", "install", "--python", folder / "bin/python", "--link-mode", "copy", *what)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The repository's sources copied, so that no earlier build lies about, and what is built of them."""
    root = tmp_path_factory.mktemp("built")
    source = root / "source"
    source.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, source / name)
    for cache in [*source.rglob("__pycache__")]:
        shutil.rmtree(cache)
    # Without --wheel or --sdist: the sdist first, and the wheel from it.
    run_uv("build", "--python", sys.executable, "--out-dir", root / "by-sdist", source)
    run_uv("build", "--python", sys.executable, "--wheel", "--out-dir", root / "direct", source)
    return root


def wheel(folder):
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture
def environment(built, tmp_path):
    return install(tmp_path / "env", wheel(built / "direct"))


def package(environment):
    (path,) = environment.glob("lib/python*/site-packages/radiance_patch")
    return path


def tool(environment, *args, **more):
    return sandbox.tool(*args, command=(environment / "bin/radiance-patch",), **more)


@pytest.mark.parametrize("kind", ["direct", "by-sdist"])
def test_wheel_holds_every_module(built, kind):
    with zipfile.ZipFile(wheel(built / kind)) as archive:
        names = archive.namelist()
        assert archive.read("radiance_patch/schema.json") == (ROOT / "radiance_patch/schema.json").read_bytes()
        (license_file,) = [name for name in names if name.endswith("licenses/LICENSE")]
        assert archive.read(license_file) == (ROOT / "LICENSE").read_bytes()
    assert {name for name in names if name.endswith(".py")} == modules()
    assert {name for name in names if ".dist-info/" not in name} == modules() | {"radiance_patch/schema.json"}


def test_sdist_holds_the_sources(built):
    (path,) = (built / "by-sdist").glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in SOURCES:
        inside = {f"{name}/{path.name}" for path in (ROOT / name).glob("*.py")} or {name}
        assert inside <= names
    assert "radiance_patch/schema.json" in names


def test_every_kind_of_install_says_the_same(built, environment, tmp_path):
    editable = install(tmp_path / "editable", "--editable", built / "source")
    by_sdist = install(tmp_path / "by-sdist", wheel(built / "by-sdist"))
    site = sandbox.small_tree(tmp_path / "site")
    lists, patches = [], []
    for each in (environment, by_sdist, editable):
        lists.append(tool(each, "list", "--json").out)
        # Digests stand in the patched lines, so that equal patches mean equal payloads too.
        patches.append(tool(each, "apply", *sandbox.SMALL, "--diff", site=site).out)
    assert len(set(lists)) == len(set(patches)) == 1
    assert patches[0] == sandbox.tool("apply", *sandbox.SMALL, "--diff", site=site).out


def test_payload_in_place_is_the_repository(environment, tmp_path):
    site = sandbox.small_tree(tmp_path / "site")
    assert tool(environment, "apply", *sandbox.SMALL, site=site).exit == 0
    placed = {path.name: path.read_bytes() for path in (site / "vllm/_radiance").glob("*.py")}
    assert placed == {path.name: path.read_bytes() for path in (ROOT / "kernels").glob("*.py")}


def empty(folder):
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda package: empty(package / "hunks"), "This radiance-patch carries no hunks."),
        (lambda package: shutil.rmtree(package / "hunks"), "This radiance-patch is incomplete"),
        (lambda package: empty(package / "kernels"), "This radiance-patch carries no payload."),
        (lambda package: shutil.rmtree(package / "kernels"), "This radiance-patch is incomplete"),
        (lambda package: (package / "hunks/a_new_one.py").write_text("1 / 0"), "The hunk a_new_one cannot be loaded."),
        (lambda package: (package / "hunks/scheduler_cap.py").write_text("HUNK = ("), "The hunk scheduler_cap cannot"),
    ],
    ids=["no hunks", "no hunks folder", "no kernels", "no kernels folder", "hunk raises", "hunk cut short"],
)
def test_an_incomplete_install_is_no_silent_success(environment, tmp_path, spoil, what):
    """An apply with no hunks would do nothing, and say that all is well."""
    site = sandbox.small_tree(tmp_path / "site")
    spoil(package(environment))
    with sandbox.untouched(site):
        for command in ("apply", "doctor"):
            result = tool(environment, command, site=site)
            text = result.err + result.out
            assert result.exit == 1, result
            assert what in text
            assert "pip install --force-reinstall radiance-patch" in text
    if "cannot" in what:
        assert f"{package(environment)}{os.sep}hunks{os.sep}" in text
        assert what.split()[2] + ".py" in text


def test_metadata(built):
    with zipfile.ZipFile(wheel(built / "direct")) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = archive.read(name).decode()
    assert "License-Expression: Apache-2.0\n" in metadata
    needed = {line.partition(": ")[2] for line in metadata.splitlines() if line.startswith("Requires-Dist: ")}
    assert {line for line in needed if "extra ==" not in line} == {
        "click>=8.1",
        "mousebender>=2024.1",
        "packaging>=23",
        "platformdirs>=4",
        "remotezip>=0.12",
        "requests>=2.31",
    }
