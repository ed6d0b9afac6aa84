"""vLLM's code is not what the hunks were proved on: exit 4, the place and the reason, and nothing written.

In every test RECORD fits the changed file: it is as if vLLM had been published so.
"""

from pathlib import Path

import pytest

from tests.faults.sandbox import (
    SMALL,
    SMALL_FILE,
    differences,
    dist_info,
    ok,
    replace,
    rewrite,
    seal,
    snapshot,
    tool,
    untouched,
)

LOOP = "        for req_id in scheduler_output.num_scheduled_tokens:\n"
FUNCTION = "    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:\n"
PROPOSER = "vllm/v1/spec_decode/llm_base_proposer.py"


def refused(site: Path, *args: str) -> dict[str, str]:
    with untouched(site):
        result = tool("apply", "--json", *args, site=site)
        assert result.exit == 4
        assert tool("apply", "--check", *args, site=site).exit == 4
        return result.error


def test_the_anchor_is_missing(site: Path):
    rewrite(site, SMALL_FILE, replace(LOOP, "        for req_id in list(scheduler_output.num_scheduled_tokens):\n"))
    error = refused(site)
    assert error["where"].startswith(f"{site}/{SMALL_FILE}:")
    assert "no longer contains" in error["why"]
    assert error["next"] == "pip install --force-reinstall --no-deps vllm==0.33.0"


def seed_apply(text: str, anchor: str) -> tuple[int, str]:
    """Do as the seed did with the feature's variable unset: its exit code and what it says."""
    return (0, "OK") if text.count(anchor) == 1 else (0, "WARN not applied (inert)")


def test_l6_a_missing_anchor_is_no_success_whatever_the_environment_says(site: Path):
    rewrite(site, SMALL_FILE, replace(LOOP, "        for req_id in list(scheduler_output.num_scheduled_tokens):\n"))
    assert seed_apply((site / SMALL_FILE).read_text(), LOOP)[0] == 0
    for environment in ({}, {"RADIANCE_DYNAMIC_WIDTH": "0"}, {"RADIANCE_DYNAMIC_WIDTH": "1"}):
        with untouched(site):
            assert tool("apply", "--json", site=site, env=environment).exit == 4
    assert tool("status", "--json", site=site).exit == 3


def test_the_anchor_is_there_twice(site: Path):
    rewrite(site, SMALL_FILE, replace(LOOP, LOOP + "            pass\n" + LOOP))
    error = refused(site)
    assert "2 times" in error["why"]
    assert "async_scheduler_cap" in error["what"]


def test_the_anchor_moved_to_another_function(site: Path):
    rewrite(
        site, SMALL_FILE, replace(LOOP, f"        self._each(scheduler_output)\n\n    def _each(self, output):\n{LOOP}")
    )
    error = refused(site)
    assert "_update_after_schedule no longer contains" in error["why"]
    assert "stands in AsyncScheduler._each" in error["why"]


def test_the_function_is_missing(site: Path):
    rewrite(site, SMALL_FILE, replace(FUNCTION, FUNCTION.replace("_update_after", "_advance_after")))
    assert "has no function AsyncScheduler._update_after_schedule" in refused(site)["why"]


def test_the_function_is_there_twice(site: Path):
    rewrite(site, SMALL_FILE, replace(FUNCTION, f"{FUNCTION}        pass\n\n{FUNCTION}"))
    assert "2 times" in refused(site)["why"]


def test_one_drifted_hunk_keeps_all_others_out(site: Path):
    rewrite(site, PROPOSER, lambda data: data.replace(b"def propose(", b"def suggest("))
    assert f"{site}/{PROPOSER}" in refused(site)["where"]
    ok("apply", *SMALL, site=site)


def test_a_file_of_another_release_is_missing(site: Path):
    """The CPU build lacks files that the CUDA build has: RECORD does not list them."""
    (site / SMALL_FILE).unlink()
    seal(site, SMALL_FILE)
    error = refused(site)
    assert error["where"] == f"{site}/{SMALL_FILE}"
    assert "missing-file" in error["what"]
    status = tool("status", "--json", site=site)
    assert status.exit == 4
    assert {"missing-file", "pristine"} == {hunk["state"] for hunk in status.body["hunks"]}


def test_a_function_changed_around_its_anchor(site: Path):
    """Needs review: nothing is written until that is typed, and then everybody can see that it was."""
    rewrite(site, SMALL_FILE, replace(LOOP, f"        self.count = 1\n{LOOP}"))
    before = snapshot(site)
    error = refused(site)
    assert "has changed since" in error["why"]
    assert "--accept-unreviewed" in error["next"]

    ok("apply", "--accept-unreviewed", *SMALL, site=site)
    status = ok("status", "--json", site=site)
    assert "1 accepted unreviewed" in status.body["summary"]
    (hunk,) = (hunk for hunk in status.body["hunks"] if hunk["id"] == "async_scheduler_cap")
    assert hunk["detail"] == "accepted unreviewed"
    ok("revert", site=site)
    assert differences(before, site) == []


def test_layout_and_comments_are_no_change(site: Path):
    rewrite(site, SMALL_FILE, replace(LOOP, f"        # every one\n{LOOP}"))
    ok("apply", *SMALL, site=site)


@pytest.mark.parametrize("broken", ["def f(:\n", "\n\nclass", "(" * 5000, f"x = {'-' * 50_000}1\n"])
def test_a_file_that_does_not_parse(site: Path, broken: str):
    rewrite(site, SMALL_FILE, lambda data: data + broken.encode())
    assert "does not parse" in refused(site)["why"]


def test_refusal_lists_every_hunk(site: Path):
    rewrite(site, PROPOSER, lambda data: data.replace(b"def propose(", b"def suggest("))
    body = tool("apply", "--json", site=site).body
    states = {hunk["id"]: hunk["state"] for hunk in body["hunks"]}
    assert states["proposer_begin"] == states["proposer_stop"] == "drifted"
    assert states["async_scheduler_cap"] == "pristine"
    assert "radiance" not in str(list(dist_info(site).iterdir()))
