import ast
import importlib
import itertools
import sys
from pathlib import Path

import pytest
from packaging.version import Version

from radiance_patch import registry
from radiance_patch.errors import BrokenInstallError
from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

ROOT = Path(__file__).parents[1]
GOOD = """
from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    __name__, "a.py", "why", "none: an example", "never", ("draft",),
    (Variant(Anchor("f", "x"), Edit(Where.BEFORE, "y"), {"1.0": "0"}),),
)
"""

numbers = itertools.count()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A folder in the place of radiance_patch.hunks, under a name that no other test has imported."""
    name = f"hunks_of_a_test_{next(numbers)}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    load = registry._package
    monkeypatch.setattr(registry, "_package", lambda asked: load(name if asked == "radiance_patch.hunks" else asked))
    yield tmp_path / name
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[module]


def example(text="_radiance_draft.begin(self)", where=Where.BEFORE, name="example", calls=("draft",)):
    edit = Edit(where, text)
    return Hunk(name, "a.py", "why", "none", "never", calls, (Variant(Anchor("f", "x"), edit, {"1.0": "0"}),)), edit


def test_hunks_are_all_files_of_the_folder_by_id():
    ids = [hunk.id for hunk in registry.hunks()]
    assert ids == sorted(path.stem for path in (ROOT / "hunks").glob("*.py") if path.stem != "__init__")


def test_a_new_file_is_found(package):
    (package / "second.py").write_text(GOOD)
    (package / "first.py").write_text(GOOD)
    assert [hunk.id for hunk in registry.hunks()] == ["first", "second"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("raise RuntimeError('no such luck')", "RuntimeError: no such luck"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def f(:", "SyntaxError: "),
        ("HUNKS = []", "AttributeError: "),
        ("HUNK = 1", "TypeError: HUNK is no Hunk"),
    ],
)
def test_a_broken_hunk_is_named(package, text, why):
    (package / "first.py").write_text(GOOD)
    (package / "second.py").write_text(text)
    with pytest.raises(BrokenInstallError) as caught:
        registry.hunks()
    assert caught.value.what == "The hunk second cannot be loaded."
    assert caught.value.where == str(package / "second.py")
    assert caught.value.why.startswith(why)


def test_no_hunks_at_all(package):
    with pytest.raises(BrokenInstallError, match="carries no hunks") as caught:
        registry.hunks()
    assert caught.value.where == str(package)


def test_payload_is_the_folder():
    on_disk = {path.name: path.read_bytes() for path in (ROOT / "kernels").glob("*.py")}
    assert registry.payload() == on_disk
    assert list(registry.payload()) == sorted(on_disk)


def test_payload_imports_only_what_a_vllm_has():
    """It runs where radiance-patch may be gone; kernels/ must not reach back."""
    for name, data in registry.payload().items():
        for node in ast.walk(ast.parse(data)):
            if isinstance(node, ast.Import):
                tops = {alias.name.partition(".")[0] for alias in node.names}
                assert tops <= sys.stdlib_module_names | {"numpy", "torch", "triton"}, name
            elif isinstance(node, ast.ImportFrom) and node.level:
                modules = {node.module} if node.module else {alias.name for alias in node.names}
                assert {f"{module}.py" for module in modules} <= registry.payload().keys(), name
            elif isinstance(node, ast.ImportFrom):
                top = node.module.partition(".")[0]
                assert top in sys.stdlib_module_names | {"numpy", "torch", "triton"}, name


def test_digest_follows_the_edit_and_the_payload(monkeypatch):
    hunk, edit = example()
    digest = registry.digest(hunk, edit)
    others = [
        example(text="_radiance_draft.begin(self, 1)"),
        example(where=Where.AFTER),
        example(name="other"),
        example(calls=("draft", "width")),
    ]
    digests = [registry.digest(*other) for other in others]
    payload = registry.payload()
    monkeypatch.setattr(registry, "payload", lambda: {**payload, "draft.py": payload["draft.py"] + b"\n"})
    digests.append(registry.digest(hunk, edit))
    monkeypatch.setattr(registry, "payload", lambda: {**payload, "more.py": b""})
    digests.append(registry.digest(hunk, edit))
    monkeypatch.setattr(registry, "payload", lambda: payload)
    assert registry.digest(hunk, edit) == digest
    assert len({digest, *digests}) == 7
    assert len(digest) == 12


def test_supported_is_what_every_hunk_was_proved_on():
    def hunk(*releases):
        edit = Edit(Where.BEFORE, "y")
        return Hunk("h", "a.py", "", "", "", (), (Variant(Anchor("f", "x"), edit, dict.fromkeys(releases, "")),))

    found = registry.supported([hunk("0.9.0", "0.10.0", "0.11.0"), hunk("0.10.0", "0.9.0")])
    assert found == [Version("0.9.0"), Version("0.10.0")]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.33.0", ["0.33.0", "0.32.0"]),
        ("0.33.1", ["0.33.0", "0.32.0"]),
        ("0.34.0", ["0.33.0", "0.32.0"]),
        ("0.27.1", ["0.28.0", "0.29.0"]),
        ("0.29.1", ["0.29.0", "0.30.0"]),
        ("0.32", ["0.32.0", "0.33.0"]),
        ("1.0.0", ["0.33.0", "0.32.0"]),
        ("0.1.dev5+g123", ["0.28.0", "0.29.0"]),
        ("0.30.0rc1", ["0.30.0", "0.29.0"]),
    ],
)
def test_nearest(version, expected):
    releases = [Version(f"0.{minor}.0") for minor in (28, 29, 30, 32, 33)]
    assert [str(found) for found in registry.nearest(Version(version), releases)] == expected


def test_module_names_what_is_missing():
    assert registry.module("settings").PREFIX == "RADIANCE_"
    with pytest.raises(BrokenInstallError, match=r"incomplete: radiance_patch\.kernels\.nothing is missing"):
        registry.module("nothing")


def test_hunk_takes_its_id_from_its_module():
    assert example(name="radiance_patch.hunks.some_name")[0].id == "some_name"


@pytest.mark.parametrize(
    ("version", "covered"),
    [("0.27.1", False), ("0.28.0", True), ("0.28.5", True), ("0.30.0", True), ("0.30.1", False), ("0.28.0rc1", False)],
)
def test_a_variant_covers_a_closed_range(version, covered):
    variant = Variant(Anchor("f", "x"), Edit(Where.BEFORE, "y"), {"0.30.0": "a", "0.28.0": "b"})
    assert variant.covers(Version(version)) is covered
    assert (variant.first, variant.last) == (Version("0.28.0"), Version("0.30.0"))


def moved(**more):
    edit = Edit(Where.BEFORE, "_radiance_draft.begin(self)")
    old = Variant(Anchor("f", "x"), edit, {"1.0": "0", "1.1": "0"}, file="old.py")
    return Hunk(
        "example",
        "new.py",
        "why",
        "none",
        "never",
        ("draft",),
        (old, Variant(Anchor("f", "x"), edit, {"2.0": "0"})),
        **more,
    )


@pytest.mark.parametrize(
    ("version", "file"),
    [("0.9", "old.py"), ("1.0", "old.py"), ("1.1.1", "old.py"), ("2.0", "new.py"), ("3.0", "new.py")],
)
def test_a_hunk_follows_its_file(version, file):
    (there,) = registry.at([moved()], Version(version))
    assert (there.file, there.id, there.variants) == (file, "example", moved().variants)


@pytest.mark.parametrize(
    ("version", "same"), [("0.31.1", "0.31.0"), ("0.31.0.post1", "0.31.0"), ("0.32.0rc1", "0.32.0")]
)
def test_a_patch_release_has_the_hunks_of_its_minor_release(version, same):
    """Half of those of a feature would be worse than none: a first pass without a head, and drafts made after it."""
    there, known = (registry.at(registry.hunks(), Version(name)) for name in (version, same))
    assert [(hunk.id, hunk.file) for hunk in there] == [(hunk.id, hunk.file) for hunk in known]


def test_a_hunk_is_absent_where_there_is_nothing_to_patch():
    assert [len(registry.at([moved(since="1.1", until="1.1")], Version(v))) for v in ("1.0", "1.1", "2.0")] == [0, 1, 0]
