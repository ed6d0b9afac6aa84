"""The README's examples: their form, and their shell lines run in an environment made for it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import uv
import yaml

from radiance_patch import registry
from tests.faults import sandbox

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def block(language):
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return text


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """An environment with radiance-patch, and a real vLLM as far as the patch reads it, which asks for nothing more."""
    source = tmp_path_factory.mktemp("source")  # a copy, as a build leaves its own files beside the sources
    for name in ("pyproject.toml", "README.md", "LICENSE", "radiance_patch", "hunks", "kernels"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, source / name)
    root = tmp_path_factory.mktemp("scratch") / "env"
    env = {name: value for name, value in sandbox.environment().items() if name != "PYTHONWARNINGS"}
    for command in (
        ("venv", "--seed", "--python", sys.executable, root),
        ("pip", "install", "--python", root / "bin/python", "--link-mode", "copy", source),
    ):
        subprocess.run([uv.find_uv_bin(), *command, "--quiet"], cwd="/", env=env, check=True)
    (site,) = root.glob("lib/python*/site-packages")
    shutil.copytree(sandbox.small_tree(root / "tree"), site, dirs_exist_ok=True)
    metadata = sandbox.dist_info(site) / "METADATA"
    metadata.write_text(re.sub(r"(?m)^Requires-Dist:.*\n", "", metadata.read_text()))
    return root


@pytest.fixture
def shell(environment, tmp_path):
    """Runs a line there as `docker build` and GitHub's runner do: /bin/sh, or bash that ends at the first error."""

    def run(line, *shell):
        env = {**sandbox.environment(), "PYTHONWARNINGS": "", "PATH": f"{environment}/bin:/usr/bin:/bin"}
        env |= {"VIRTUAL_ENV": str(environment), "RADIANCE_PATCH_CACHE": str(tmp_path)}
        return subprocess.run([*shell, line], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    yield run
    run("radiance-patch revert", "/bin/sh", "-c")


def test_dockerfile(shell):
    lines = [line.split(maxsplit=1) for line in block("dockerfile").splitlines()]
    assert [word for word, _ in lines] == ["FROM", "RUN", "ENV"]
    image, command, setting = (rest for _, rest in lines)
    assert re.fullmatch(r"vllm/vllm-openai:v[\d.]+", image)
    assert image.rpartition(":v")[2] in {str(version) for version in registry.supported(registry.hunks())}
    result = shell(command, "/bin/sh", "-c")
    assert result.returncode == 0, result
    name, _, value = setting.partition("=")
    assert name in {known.name for known in registry.module("settings").SETTINGS}
    registry.module("settings").read({name: value})


def test_dockerfile_does_not_build_where_the_patch_does_not_hold(shell, environment):
    (site,) = environment.glob("lib/python*/site-packages")
    (command,) = re.findall(r"^RUN (.*)$", block("dockerfile"), re.MULTILINE)
    before = (site / "vllm/_version.py").read_bytes()
    sandbox.set_version(site, "0.99.0")
    try:
        assert shell(command, "/bin/sh", "-c").returncode == 4
    finally:
        (site / "vllm/_version.py").write_bytes(before)
        sandbox.seal(site, "vllm/_version.py")


def test_actions(shell):
    workflow = yaml.safe_load(block("yaml"))
    events = workflow[True]  # YAML 1.1 takes `on` for a truth value, as PyYAML does
    assert set(events) == {"push", "schedule"}
    assert re.fullmatch(r"\d+ \d+ \* \* \*", events["schedule"][0]["cron"])
    ran = []
    for job in workflow["jobs"].values():
        assert job["runs-on"]
        assert re.fullmatch(r"github\.event_name == '(push|schedule)'", job["if"])
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            if "run" in step:
                result = shell(step["run"], "/bin/bash", "-e", "-c")
                newest = "check --latest" in step["run"]  # may be newer than what is supported
                assert result.returncode in ((0, 4) if newest else (0,)), result
                ran.append(step["run"])
    assert [line.split()[1] for line in ran if line.startswith("radiance-patch")] == ["apply", "status", "check"]


def test_status_fails_where_the_patch_is_not(shell):
    """So that the step above cannot pass for nothing."""
    assert shell("radiance-patch status --json", "/bin/bash", "-e", "-c").returncode == 3


@pytest.mark.parametrize("line", re.findall(r"^    radiance-patch check (.*?)(?:  #.*)?$", README, re.MULTILINE))
def test_check_as_written(line, tmp_path):
    args = line.split()
    if "--wheel" in args:  # it is the name of the published one
        name = tmp_path / args[args.index("--wheel") + 1]
        shutil.make_archive(str(name), "zip", sandbox.small_tree(tmp_path / "site"))
        Path(f"{name}.zip").rename(name)
    result = sandbox.tool("check", *args, cwd=tmp_path, env={"PIP_NO_INDEX": "0"})
    assert result.exit in ((0, 4) if "--latest" in args else (0,)), result


def test_make_targets_are_there():
    makefile = (ROOT / "Makefile").read_text()
    for name in re.findall(r"^    make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), name
