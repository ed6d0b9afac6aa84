"""The text stays what stock vLLM writes, and fewer drafts are verified (issue 2, point 5)."""

from dataclasses import replace

import pytest

from tests.real import engine as real
from tests.real.compare import first_differences, target_top_two, text_changes
from tests.real.engine import Engine, Served
from tests.real.jobs import JOB, NARROW, OFF, ON, PROCESSES, SHORT

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]

# Appended to the payload: the cap counts the drafts that it cut as computed, which
# leaves tokens without keys and values behind.
BROKEN_CAP = """
_sound = cap_batch


def cap_batch(scheduler, scheduler_output=None):
    proposed = {request.request_id: len(request.spec_token_ids) for request in scheduler.running}
    _sound(scheduler, scheduler_output)
    for request in scheduler.running:
        request.num_computed_tokens += min(1, proposed[request.request_id] - len(request.spec_token_ids))
"""


def assert_same_text(engine: Engine, stock: Served, served: Served) -> None:
    top_two = target_top_two(engine, stock.prompts, stock.tokens)
    assert text_changes(stock.tokens, served.tokens, top_two) == []


def test_the_job_is_as_large_as_asked(stock):
    assert len(stock.tokens) >= 24
    assert {len(tokens) for tokens in stock.tokens} == {96}
    assert stock.accepted_tokens > 0


def test_width_off_does_what_stock_does(engine, patched, stock):
    served = real.serve(engine, JOB, site=patched, env=OFF)
    assert_same_text(engine, stock, served)
    assert (served.drafts, served.draft_tokens) == (stock.drafts, stock.draft_tokens)
    assert served.accepted_per_position == stock.accepted_per_position


@pytest.mark.parametrize("settings", [ON, NARROW], ids=["default knobs", "narrow"])
def test_width_on_verifies_less_for_the_same_text(engine, patched, stock, settings):
    served = real.serve(engine, JOB, site=patched, env=settings)
    assert_same_text(engine, stock, served)
    assert served.draft_tokens < stock.draft_tokens


def test_narrow_caps_without_the_padded_drafter(engine, patched, stock):
    job = replace(JOB, disable_padded_drafter_batch=True)
    served = real.serve(engine, job, site=patched, env=NARROW)
    assert_same_text(engine, stock, served)
    assert served.draft_tokens < stock.draft_tokens


def test_the_patch_reaches_the_engines_own_processes(engine, patched):
    stock = real.serve(engine, SHORT, env=PROCESSES)
    served = real.serve(engine, SHORT, site=patched, env=PROCESSES | NARROW)
    assert_same_text(engine, stock, served)
    assert served.draft_tokens < stock.draft_tokens


def test_a_cap_that_breaks_the_text_is_caught(engine, stock):
    with real.patched_overlay(engine) as site:
        width = site / "vllm" / "_radiance" / "width.py"
        width.write_text(width.read_text() + BROKEN_CAP)
        served = real.serve(engine, JOB, site=site, env=NARROW)
    assert served.draft_tokens < stock.draft_tokens
    top_two = target_top_two(engine, stock.prompts, stock.tokens)
    assert len(text_changes(stock.tokens, served.tokens, top_two)) > len(stock.tokens) // 2
    assert first_differences(stock.tokens, served.tokens)
