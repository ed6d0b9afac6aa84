import os
import subprocess
import sys
from pathlib import Path

import pytest

from radiance_patch import caches, doctor, registry
from radiance_patch.doctor import Finding
from radiance_patch.errors import Exit
from tests.faults import sandbox
from tests.real.releases import Release, site_packages


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """No setting of the person who runs the tests has a say."""
    for name in [name for name in os.environ if name.startswith(("RADIANCE_DY", "RADIANCE_DRAFT", "PYTHON", "VLLM_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("VLLM_CACHE_ROOT", "/nowhere")


@pytest.fixture
def site(tmp_path):
    return sandbox.small_tree(tmp_path / "site-packages")


def findings(site, topic=None):
    found = doctor.examine(str(site))
    return [(finding.text, finding.exit) for finding in found if topic in (None, finding.topic)]


@pytest.mark.parametrize(
    ("codes", "worst"),
    [
        ([], Exit.OK),
        ([Exit.OK], Exit.OK),
        ([Exit.OK, Exit.NOT_APPLIED], Exit.NOT_APPLIED),
        ([Exit.NOT_APPLIED, Exit.FAILED], Exit.FAILED),  # a wrong setting stays wrong once the patch is in
        ([Exit.FAILED, Exit.OK, Exit.INCONSISTENT, Exit.DRIFTED], Exit.INCONSISTENT),
    ],
)
def test_verdict(codes, worst):
    assert doctor.verdict([Finding("topic", "text", code) for code in [Exit.OK, *codes]]) is worst


def test_a_good_installation(site):
    sandbox.ok("apply", *sandbox.SMALL, site=site)
    found = doctor.examine(str(site))
    assert {finding.exit for finding in found} == {Exit.OK}
    assert [finding.topic for finding in found[:4]] == ["radiance-patch", "vllm", "python", "patch"]
    assert findings(site, "vllm") == [(f"vllm 0.33.0 in {site}, installed by unknown from a package index", Exit.OK)]


def test_nothing_is_written_and_nothing_imported(site):
    with sandbox.untouched(site):
        doctor.examine(str(site))


def test_no_vllm(tmp_path):
    ((text, code),) = findings(tmp_path, "vllm")
    assert code is Exit.FAILED
    assert text.startswith(f"No vLLM was found. {tmp_path} next: pip install vllm")
    assert len(findings(tmp_path, "settings")) > 5


def test_metadata_of_another_version(site):
    metadata = sandbox.dist_info(site) / "METADATA"
    assert findings(site, "metadata") == []
    metadata.write_text(metadata.read_text().replace("\nVersion: 0.33.0\n", "\nVersion: 0.33\n"))
    assert findings(site, "metadata") == []  # the same version, spelt otherwise
    metadata.write_text(metadata.read_text().replace("\nVersion: 0.33\n", "\nVersion: 0.32.0\n"))
    text = f"{metadata.parent.name} says 0.32.0, the code says 0.33.0"
    assert findings(site, "metadata") == [(text, Exit.INCONSISTENT)]
    metadata.unlink()
    text = f"{metadata.parent.name} says no version, the code says 0.33.0"
    assert findings(site, "metadata") == [(text, Exit.INCONSISTENT)]


def test_an_edited_file(site):
    path = site / sandbox.SMALL_FILE
    path.write_bytes(path.read_bytes() + b"# mine\n")
    ((text, code),) = findings(site, "patch")
    assert code is Exit.INCONSISTENT
    assert str(path) in text


@pytest.mark.parametrize(
    ("direct", "origin"),
    [
        ('{"url": "https://a.example/r.git", "vcs_info": {}}', "from a repository, https://a.example/r.git"),
        ('{"url": "file:///w/v.whl", "archive_info": {}}', "from a file, file:///w/v.whl"),
        ('{"url": "file:///vllm", "dir_info": {}}', "from a folder, file:///vllm"),
        ("{}", "from a place that direct_url.json does not tell"),
        ("[", "from a place that direct_url.json does not tell"),
    ],
)
def test_install_kind(site, direct, origin):
    (sandbox.dist_info(site) / "direct_url.json").write_text(direct)
    (sandbox.dist_info(site) / "INSTALLER").write_text("uv\n")
    ((text, _),) = findings(site, "vllm")
    assert text.endswith(f", installed by uv {origin}")


@pytest.mark.parametrize(
    ("folder", "said", "code"),
    [
        ("lib/python3.12/site-packages", "3.12, and vLLM asks for ", Exit.OK),
        ("lib/python3.9/site-packages", "3.9, and vLLM asks for ", Exit.INCONSISTENT),
        ("elsewhere", "the folder's path does not tell which; vLLM asks for ", Exit.OK),
    ],
)
def test_python(tmp_path, folder, said, code):
    ((text, found),) = findings(sandbox.small_tree(tmp_path / folder), "python")
    assert (text.startswith(said), found) == (True, code)


@pytest.mark.parametrize("release", ["0.28.0", "0.31.0", "0.33.0"])
def test_hard_links_into_a_cache(tmp_path, release):
    chosen = Release("vllm", release)
    # Files that other releases' hunks rewrite are no targets here.
    others = {f"vllm/{hunk.file}" for hunk in registry.hunks()}
    there = sorted(name for name in others if (site_packages(chosen) / name).is_file())
    site = sandbox.small_tree(tmp_path / "site", chosen, also=there)
    assert findings(site, "links") == []
    path = site / sandbox.SMALL_FILE
    path.with_suffix(".twin").hardlink_to(path)
    path.with_suffix(".third").hardlink_to(path)
    ((text, code),) = findings(site, "links")
    total = len(sandbox.targets(site))
    assert (code, text.partition(",")[0]) == (
        Exit.OK,
        f"1 of {total} target files are hard links (up to 3 names each)",
    )


def test_bytecode(site, monkeypatch):
    assert findings(site, "bytecode") == []
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "/tmp/cache")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    prefix, written = [text for text, _ in findings(site, "bytecode")]
    assert "/tmp/cache" in prefix
    assert "PYTHONDONTWRITEBYTECODE" in written


@pytest.mark.parametrize(
    ("mode", "said"),
    [("timestamp", "time and size"), ("checked-hash", "hash"), ("unchecked-hash", "nothing")],
)
def test_bytecode_mode(site, mode, said):
    compile_one = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", mode, site / sandbox.SMALL_FILE]
    subprocess.run(compile_one, check=True)
    ((text, _),) = findings(site, "bytecode")
    assert text.startswith(f"of the target files: 1 checked by {said};")
    (cached,) = (site / sandbox.SMALL_FILE).parent.glob("__pycache__/*.pyc")
    cached.write_bytes(b"\0\0\r\n" + cached.read_bytes()[4:])
    ((text, _),) = findings(site, "bytecode")
    assert "1 checked by a Python of another version" in text


def test_compile_caches(site, tmp_path, monkeypatch):
    """Entries of before the apply are of no use after it; later ones are not named."""
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path / "with space"))
    folder = tmp_path / "with space/torch_compile_cache"
    for name in ("0123456789", "torch_aot_compile/abcdef"):
        (folder / name).mkdir(parents=True)
        (folder / name / "model").write_bytes(bytes(1_000_000))
    ((text, code),) = findings(site, "compiled")
    assert code is Exit.OK
    assert text.startswith(f"2 entries, 2.0 MB in {folder} of the unpatched vLLM")
    assert f"rm -r '{folder}'" in text
    sandbox.ok("apply", *sandbox.SMALL, site=site)
    applied = (sandbox.dist_info(site) / "radiance-patch/state.json").stat().st_mtime
    os.utime(folder / "0123456789", (applied - 9, applied - 9))
    os.utime(folder / "torch_aot_compile/abcdef", (applied + 9, applied + 9))
    ((text, code),) = findings(site, "compiled")
    assert text.startswith(f"1 entry, 1.0 MB in {folder} from before the patch")
    monkeypatch.setenv("VLLM_FORCE_AOT_LOAD", "1")
    ((text, code),) = findings(site, "compiled")
    assert ("VLLM_FORCE_AOT_LOAD=1 lets the start fail" in text, code) == (True, Exit.INCONSISTENT)


def test_where_vllm_keeps_its_caches(monkeypatch):
    monkeypatch.delenv("VLLM_CACHE_ROOT")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert caches.root() == Path("/xdg/vllm")
    monkeypatch.setenv("VLLM_CACHE_ROOT", "~/vllm")
    assert caches.root() == Path.home() / "vllm"


def test_an_edit_of_what_we_patched_is_said_once(site):
    sandbox.ok("apply", *sandbox.SMALL, site=site)
    path = site / sandbox.SMALL_FILE
    path.write_bytes(path.read_bytes() + b"# mine\n")
    ((text, code),) = findings(site, "patch")
    assert (str(path) in text, code) == (True, Exit.INCONSISTENT)
    assert findings(site, "foreign") == []


def test_another_patcher(site):
    """In a file that no hunk touches, before our patch and after it."""
    assert findings(site, "foreign") == []
    path = site / "vllm/__init__.py"
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data + b"# patched by someone\n")
    (site / "vllm/extra.py").write_text("")
    sandbox.ok("apply", *sandbox.SMALL, site=site)
    (edited, code), (extra, _) = findings(site, "foreign")
    assert code is Exit.INCONSISTENT
    assert edited.startswith("other than RECORD lists it, by another patcher or by hand: vllm/__init__.py; next: pip")
    assert extra.startswith("in no RECORD, by another patcher or by hand: vllm/extra.py; next: pip")
    path.write_bytes(data)
    (site / "vllm/extra.py").unlink()
    assert findings(site, "foreign") == []


def test_settings(site, monkeypatch):
    monkeypatch.setenv("RADIANCE_DYNW_ALPHA", "0.5")
    monkeypatch.setenv("RADIANCE_DYNW_MIN", "")
    texts = [text for text, _ in findings(site, "settings")]
    meaning = "weight of the newest accepted count in the moving average"
    assert f"RADIANCE_DYNW_ALPHA=0.5 (set): {meaning}" in texts
    assert any(text.startswith("RADIANCE_DYNW_MIN=2 (default): ") for text in texts)


def test_a_wrong_setting_is_said_as_the_engine_says_it(site, monkeypatch):
    monkeypatch.setenv("RADIANCE_DYNW_ALPHA", "2")
    text = "radiance-patch: RADIANCE_DYNW_ALPHA='2': expected a number above 0, at most 1"
    assert (text, Exit.FAILED) in findings(site, "settings")
    assert sandbox.tool("doctor", site=site, env={"RADIANCE_DYNW_ALPHA": "2"}).exit == 1


def test_an_empty_schedule_is_a_value(site, monkeypatch):
    """No cap, which is not the default."""
    monkeypatch.setenv("RADIANCE_DRAFT_SCHEDULE", "")
    (text,) = [text for text, _ in findings(site, "settings") if "SCHEDULE" in text and "=" in text]
    assert text.startswith("RADIANCE_DRAFT_SCHEDULE= (set): ")


def test_an_unknown_setting_is_a_warning(site, monkeypatch):
    monkeypatch.setenv("RADIANCE_DYNAMIC_WITDH", "1")
    text = (
        "radiance-patch: RADIANCE_DYNAMIC_WITDH is no variable of radiance-patch; did you mean RADIANCE_DYNAMIC_WIDTH?"
    )
    assert (text, Exit.OK) in findings(site, "settings")
