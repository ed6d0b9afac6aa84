"""vLLM's own Scheduler and AsyncScheduler, patched, in process: what each request is given to verify.

The CPU platform never schedules asynchronously by itself, so this is where that path is proved.
"""

import json
from typing import Any

import pytest

from tests.real import engine as real

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]

DRAFTS = 8
ON = {
    "RADIANCE_DYNAMIC_WIDTH": "1",
    "RADIANCE_DYNW_ALPHA": "0.5",
    "RADIANCE_DYNW_MARGIN": "1",
    "RADIANCE_DYNW_MIN": "1",
    "RADIANCE_DYNW_MIN_BATCH": "1",
}
# A request that never has a draft accepted: an average of 0, and the margin.
NARROWEST = 1
both = pytest.mark.parametrize("kind", ["sync", "async"])


def run(engine: real.Engine, **options: Any) -> dict[str, Any]:
    return json.loads(real.run_inside(engine, "scheduler.py", {"model": str(engine.model)}, **options))


@pytest.fixture(scope="module")
def facts(engine, patched) -> dict[str, Any]:
    return run(engine, site=patched, env=ON)


@pytest.fixture(scope="module")
def stock_facts(engine) -> dict[str, Any]:
    return run(engine, site=None, env={})


def widths(steps: list[dict[str, int]], name: str) -> list[int]:
    return [step[name] for step in steps]


@both
def test_two_requests_with_different_averages_get_different_widths(facts, kind):
    seen = facts[kind]["two_widths"]
    assert seen["averages"] == [DRAFTS + 1, 0]
    assert widths(seen["scheduled"], "good")[1:] == [DRAFTS] * 13
    assert widths(seen["scheduled"], "bad")[-8:] == [NARROWEST] * 8


@both
def test_a_cold_start_keeps_full_width(facts, kind):
    steps = facts[kind]["two_widths"]["scheduled"]
    assert steps[:2] == [{"good": 0, "bad": 0}, {"good": DRAFTS, "bad": DRAFTS}]


def test_the_shared_placeholders_keep_their_length_and_values(facts):
    shared = facts["async"]["two_widths"]["shared"]
    assert shared == [[-1] * DRAFTS] * 14


@both
def test_an_average_dies_with_its_request(facts, kind):
    seen = facts[kind]["finished"]
    assert seen["average"] == 0
    assert seen["freed"]
    assert seen["cold"] is None
    assert seen["scheduled"][:2] == [0, DRAFTS]
    assert seen["scheduled"][-1] == NARROWEST


@both
def test_a_preempted_request_keeps_its_average_and_resumes_at_its_width(facts, kind):
    seen = facts[kind]["preempted"]
    assert seen["preemptions"] == [1, 1]
    assert seen["before"] == seen["after"] == [DRAFTS + 1, 0]
    assert widths(seen["scheduled"], "good") == [0] + [DRAFTS] * 5
    assert widths(seen["scheduled"], "bad") == [0] + [NARROWEST] * 5


def test_drafts_that_a_grammar_cut_are_no_evidence(facts):
    seen = facts["sync"]["grammar"]
    assert seen["averages"] == [3, None, 0]
    assert widths(seen["scheduled"], "digits")[1:] == [2] * 11
    assert widths(seen["scheduled"], "letters") == [0] * 12
    assert widths(seen["scheduled"], "free")[-8:] == [NARROWEST] * 8


def test_slots_that_a_grammar_rejected_are_no_evidence(facts):
    seen = facts["async"]["grammar"]
    # Two of two valid drafts, not two of eight: it climbs to three and verifies one more.
    assert seen["averages"] == [3, None, 0]
    assert widths(seen["scheduled"], "digits")[-8:] == [4] * 8
    assert widths(seen["scheduled"], "letters")[1:] == [DRAFTS] * 11
    assert widths(seen["scheduled"], "free")[-8:] == [NARROWEST] * 8


@both
def test_full_decode_graphs_keep_their_one_width_and_batches_beyond_them_do_not(facts, kind):
    seen = facts[kind]["full_graphs"]
    assert seen["inside"][1:] == [{"good": DRAFTS, "bad": DRAFTS}] * 9
    assert seen["beyond"][-1] == {"good": DRAFTS, "bad": NARROWEST, "third": NARROWEST}


def test_with_the_width_off_both_schedulers_do_what_stock_ones_do(engine, patched, stock_facts):
    assert run(engine, site=patched, env=ON | {"RADIANCE_DYNAMIC_WIDTH": "0"}) == stock_facts


@both
def test_stock_verifies_every_draft(stock_facts, kind):
    assert stock_facts[kind]["two_widths"]["scheduled"][1:] == [{"good": DRAFTS, "bad": DRAFTS}] * 13
