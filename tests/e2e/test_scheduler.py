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
# Appended to the payload, in place of its own: lists cut where they lie, and every scheduled slot counted as a draft.
SEED = """
def cap_batch(scheduler, scheduler_output=None):
    for request in scheduler.running:
        average = getattr(request, AVERAGE, None)
        if average is not None:
            del request.spec_token_ids[math.ceil(average) + 1 :]


def observe(scheduler, scheduler_output, request, num_accepted):
    slots = len(scheduler_output.scheduled_spec_decode_tokens[request.request_id])
    average = getattr(request, AVERAGE, None)
    seen = num_accepted + (num_accepted >= slots)
    setattr(request, AVERAGE, float(seen) if average is None else (average + seen) / 2)
"""
both = pytest.mark.parametrize("kind", ["sync", "async"])


def run(engine: real.Engine, **options: Any) -> dict[str, Any]:
    return json.loads(real.run_inside(engine, "scheduler.py", {"model": str(engine.model)}, **options))


@pytest.fixture(scope="module")
def facts(engine, patched) -> dict[str, Any]:
    return run(engine, site=patched, env=ON)


@pytest.fixture(scope="module")
def stock_facts(engine) -> dict[str, Any]:
    return run(engine, site=None, env={})


@pytest.fixture(scope="module")
def seed_facts(engine) -> dict[str, Any]:
    with real.patched_overlay(engine) as site:
        module = site / "vllm" / "_radiance" / "width.py"
        module.write_text(module.read_text() + SEED)
        return run(engine, site=site, env=ON)


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


def test_l5_a_list_that_all_requests_share_is_not_cut_for_one_of_them(facts, seed_facts):
    ours, seed = (found["async"]["two_widths"] for found in (facts, seed_facts))
    assert len(seed["shared"][-1]) == NARROWEST  # cut for the one that accepts nothing, and so for the other
    assert widths(seed["scheduled"], "good")[-1] == NARROWEST
    assert len(ours["shared"][-1]) == DRAFTS
    assert widths(ours["scheduled"], "good")[-1] == DRAFTS


def test_l7_slots_that_hold_no_draft_do_not_lower_an_average(facts, seed_facts):
    ours, seed = (found["async"]["grammar"] for found in (facts, seed_facts))
    _, seed_letters, _ = seed["averages"]
    assert seed_letters == 0  # a grammar allowed none of its drafts, which says nothing about drafting
    assert widths(seed["scheduled"], "letters")[-1] == NARROWEST
    digits, letters, _ = ours["averages"]
    assert (digits, letters) == (3, None)
    assert widths(ours["scheduled"], "letters")[-1] == DRAFTS


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
