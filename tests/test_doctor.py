import os

import pytest

from radiance_patch import doctor
from radiance_patch.doctor import Finding
from radiance_patch.errors import Exit
from tests.faults import sandbox


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """No setting of the person who runs the tests has a say."""
    for name in [name for name in os.environ if name.startswith("RADIANCE_")]:
        monkeypatch.delenv(name)


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
    assert [finding.topic for finding in found[:3]] == ["radiance-patch", "vllm", "patch"]
    assert findings(site, "vllm") == [(f"vllm 0.33.0 in {site}, installed by unknown", Exit.OK)]


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


def test_hard_links_into_a_cache(site):
    assert findings(site, "links") == []
    path = site / sandbox.SMALL_FILE
    path.with_suffix(".twin").hardlink_to(path)
    ((text, code),) = findings(site, "links")
    assert (code, "hard links" in text) == (Exit.OK, True)


def test_a_bytecode_prefix(site, monkeypatch):
    assert findings(site, "bytecode") == []
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "/tmp/cache")
    ((text, _),) = findings(site, "bytecode")
    assert "/tmp/cache" in text


@pytest.mark.parametrize(("value", "told"), [("1", 1), ("0", 0)])
def test_what_the_cap_waits_for(site, monkeypatch, value, told):
    monkeypatch.setenv("RADIANCE_DYNAMIC_WIDTH", value)
    assert len(findings(site, "width")) == told


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
