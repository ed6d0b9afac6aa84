"""What holds for every hunk; what one hunk does stands in tests/hunks."""

import ast
import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import packaging
import pytest
from packaging.version import Version

from radiance_patch import registry
from radiance_patch.hunk import Hunk
from tests.real.releases import RELEASES, site_packages

HERE = Path(__file__).parent
HUNKS = registry.hunks()
EDITS = [pytest.param(hunk, variant, id=hunk.id) for hunk in HUNKS for variant in hunk.variants]


def pythons() -> list[str]:
    """Return the running interpreter and every other supported one on this machine."""
    names = [f"3.{minor}" for minor in range(10, 15)]
    found = [shutil.which(f"python{name}") for name in names]
    found += [str(path) for name in names for path in (Path.home() / ".pyenv/versions").glob(f"{name}.*/bin/python")]
    works = {}
    for path in [sys.executable, *filter(None, found)]:
        answer = subprocess.run(
            [path, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True, check=False
        )
        if answer.returncode == 0:
            works.setdefault(answer.stdout, path)
    return list(works.values())


def test_every_hunk_has_its_test_file():
    hunks = {path.stem for path in (HERE.parent / "hunks").glob("*.py")} - {"__init__"}
    tests = {path.stem.removeprefix("test_") for path in (HERE / "hunks").glob("test_*.py")}
    assert hunks == tests == {hunk.id for hunk in HUNKS}


@pytest.mark.parametrize("hunk", HUNKS, ids=lambda hunk: hunk.id)
def test_documentation(hunk: Hunk):
    module = importlib.import_module(hunk.module)
    assert re.fullmatch(r"[A-Z].*\.", module.__doc__)
    assert "\n" not in module.__doc__
    assert re.match(r"none: \S|vllm-project/vllm#\d+ \S", hunk.upstream)
    for text in (hunk.why, hunk.remove_when):
        assert re.fullmatch(r"\S.*[^.]", text)


@pytest.mark.parametrize("hunk", HUNKS, ids=lambda hunk: hunk.id)
def test_every_release_has_one_form(hunk: Hunk):
    published = {Version(release.version) for release in RELEASES}
    assert hunk.releases == {release for release in published if hunk.concerns(release)}
    for release in hunk.releases:
        assert len([variant for variant in hunk.variants if variant.covers(release)]) == 1


@pytest.mark.parametrize(("hunk", "variant"), EDITS)
def test_text_calls_the_payload_as_it_is_defined(hunk, variant):
    """A slip here would show only when an engine starts."""
    wrapped = "while True:\n" + "".join(f"    {line}\n" for line in variant.edit.text.splitlines())
    calls = [node for node in ast.walk(ast.parse(wrapped)) if isinstance(node, ast.Call)]
    called = set()
    for call in calls:
        assert isinstance(call.func, ast.Attribute)
        assert isinstance(call.func.value, ast.Name)
        name = call.func.value.id.removeprefix("_radiance_")
        assert not call.keywords
        parameters, required = _parameters(name, call.func.attr)
        given = [ast.unparse(argument) for argument in call.args]
        assert required <= len(given) <= len(parameters)
        _same_meaning(variant.file or hunk.file, dict(zip(parameters, given, strict=False)))
        called.add(name)
    assert called == set(hunk.calls)


def _parameters(module: str, function: str) -> tuple[list[str], int]:
    """Return a payload function's parameters and how many have no default; read, as importing it may need torch."""
    tree = ast.parse((HERE.parent / "kernels" / f"{module}.py").read_text())
    (node,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function)
    names = [argument.arg for argument in node.args.args]
    return names, len(names) - len(node.args.defaults)


def _same_meaning(file: str, arguments: dict[str, str]) -> None:
    """Assert that each parameter is given the local of its name; `self`, where it is the object so named."""
    owner = {
        "proposer": "llm_base_proposer.py",
        "runner": "model_runner.py",
        "scheduler": "scheduler.py",
        "speculator": "speculator.py",
        "manager": "cudagraph_utils.py",
    }
    for parameter, given in arguments.items():
        if given == "self":
            assert file.endswith(owner[parameter])
        else:
            assert parameter == given


def test_text_holds_no_logic():
    """At most: call, or act on what a call returned."""
    for hunk in HUNKS:
        for variant in hunk.variants:
            assert 1 <= len(variant.edit.text.splitlines()) <= 2
            assert variant.edit.text.count("_radiance_") == 1
            assert "#" not in variant.edit.text


# What another interpreter is asked: the fingerprints of all anchored functions of some trees.
ASK = """
import json, sys
from pathlib import Path
sys.path[:0] = json.loads(sys.argv[1])
from radiance_patch import locate
for path, scope, statement in json.loads(sys.argv[2]):
    source = locate.parse(Path(path).read_bytes())
    place = locate.find(source, locate.Anchor(scope, statement), locate.Where.BEFORE)
    print(locate.fingerprint(place.function))
"""


@pytest.mark.parametrize("python", pythons(), ids=lambda path: Path(path).resolve().name)
def test_fingerprints_are_those_of_every_python(python):
    """The newest release, which has the newest syntax; tests/hunks covers the others under the running interpreter."""
    release = max((r for r in RELEASES if r.distribution == "vllm"), key=lambda r: Version(r.version))
    asked, wanted = [], []
    for hunk in registry.at(HUNKS, Version(release.version)):
        variant = hunk.variant_for(Version(release.version))
        assert variant is not None
        file = site_packages(release) / "vllm" / hunk.file
        asked.append((str(file), variant.anchor.scope, variant.anchor.statement))
        wanted.append(variant.fingerprints[release.version])
    path = [str(HERE.parent), str(Path(packaging.__file__).parents[1])]
    answer = subprocess.run(
        [python, "-W", "error", "-c", ASK, json.dumps(path), json.dumps(asked)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.split() == wanted
