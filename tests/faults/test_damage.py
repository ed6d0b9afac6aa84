"""Every kind of failure gets its verdict, with the place, the reason and the next command."""

import re

import pytest

from tests import damage
from tests.faults import sandbox


@pytest.mark.parametrize("kind", damage.DAMAGES, ids=lambda kind: kind.name)
def test_verdict(kind, site):
    result = kind.verdict(site)
    assert result.exit == kind.exit, result
    body = result.body
    states = {hunk["id"]: hunk["state"] for hunk in body["hunks"]}
    assert states["async_scheduler_cap"] == kind.state
    said = [body["error"]["where"]] if "error" in body else body["problems"]
    assert any(kind.where in line for line in said), said
    assert body["error"]["next"] if "error" in body else body["next"]


@pytest.mark.parametrize("kind", [kind for kind in damage.DAMAGES if kind.exit == 4], ids=lambda kind: kind.name)
def test_check_comes_to_the_same_verdict(kind, site):
    """What apply refuses in an installed vLLM, check refuses in one that is not."""
    kind.spoil(site)
    result = sandbox.tool("check", "--source", site, "--json")
    assert result.exit == 4, result
    (release,) = result.body["releases"]
    states = {hunk["id"]: hunk["state"] for hunk in release["hunks"]}
    unproved = kind.name == "the version is unknown"
    assert states["async_scheduler_cap"] == ("same" if unproved else kind.state)
    assert {state for name, state in states.items() if name != "async_scheduler_cap"} == {"same"}


def test_a_refusal_shows_what_changed(site):
    """Against the published release, which is fetched through the index that pip is configured for."""
    sandbox.rewrite(
        site,
        sandbox.SMALL_FILE,
        sandbox.replace(damage.LOOP, f"        # A comment.\n        self.count = 1\n{damage.LOOP}"),
    )
    text = sandbox.tool("apply", site=site, env={"PIP_NO_INDEX": "0"}).err
    line = (site / sandbox.SMALL_FILE).read_text().splitlines().index("        self.count = 1") + 1
    assert f"where: {site}/{sandbox.SMALL_FILE}:{line}\n" in text
    shown = [row[9:] for row in text.splitlines() if re.match(r" {9}[-+ @]", row)]
    assert [row for row in shown if row[0] in "-+"][2:] == ["+        self.count = 1"]
    assert "--accept-unreviewed" in text


def test_a_foreign_edit_is_shown(site):
    damage._edit(site)
    error = sandbox.tool("apply", "--json", site=site, env={"PIP_NO_INDEX": "0"}).error
    assert re.search(r"async_scheduler\.py:\d+$", error["where"])
    assert "\n-        for req_id in scheduler_output" in error["diff"]
    assert "\n+        for req_id in  scheduler_output" in error["diff"]


def test_without_an_index_a_refusal_is_a_refusal(site):
    damage._edit(site)
    error = sandbox.tool("apply", "--json", site=site, env={"RADIANCE_PATCH_CACHE": str(site.parent / "empty")}).error
    assert "how is not shown: vllm 0.33.0 was not found" in error["why"]
    assert "diff" not in error


def test_an_edit_after_apply_is_shown(site):
    sandbox.ok("apply", site=site)
    path = site / sandbox.SMALL_FILE
    path.write_bytes(path.read_bytes().replace(b"req_id in scheduler", b"req_id in  scheduler"))
    for command in ("apply", "revert"):
        error = sandbox.tool(command, "--json", site=site).error
        assert [row for row in error["diff"].splitlines() if row.startswith("+ ")] == [
            "+        for req_id in  scheduler_output.num_scheduled_tokens:"
        ]
        number = int(error["where"].rpartition(":")[2])
        assert "req_id in  scheduler" in path.read_text().splitlines()[number - 1]
    status = sandbox.tool("status", "--json", site=site).body
    assert status["problems"] == [f"{path}:{number} was edited after apply"]


def test_an_edit_of_the_payload_is_shown(site):
    sandbox.ok("apply", *sandbox.SMALL, site=site)
    path = site / "vllm/_radiance/guard.py"
    path.write_text(path.read_text() + "print()\n")
    error = sandbox.tool("apply", "--json", site=site).error
    assert error["diff"].endswith("+print()")
