"""The draft controller on the real engine: the same text from fewer draft forwards (issue 3)."""

from dataclasses import replace

import pytest

from tests.e2e.test_text import assert_same_text
from tests.real import engine as real
from tests.real.jobs import DRAFT, JOB, NARROW, SHORT

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]

DEEP = replace(JOB, num_speculative_tokens=8)


@pytest.fixture(scope="module")
def deep_stock(engine):
    return real.serve(engine, DEEP)


@pytest.mark.parametrize(
    ("job", "settings"),
    [
        (replace(JOB, num_speculative_tokens=1), DRAFT),
        (replace(JOB, num_speculative_tokens=3, disable_padded_drafter_batch=True), DRAFT),
        (DEEP, DRAFT | NARROW),
    ],
    ids=["K=1", "K=3 unpadded", "K=8 with narrow widths"],
)
def test_the_text_is_stocks(engine, patched, stock, job, settings):
    served = real.serve(engine, job, site=patched, env=settings)
    assert_same_text(engine, stock, served)
    assert served.controller["proposals"] > 0


def test_deep_drafting_launches_fewer_forwards_and_more_of_its_drafts_are_accepted(engine, patched, stock, deep_stock):
    served = real.serve(engine, DEEP, site=patched, env=DRAFT)
    assert_same_text(engine, stock, served)
    counts = served.controller
    assert counts["forwards_saved"] >= 0.2 * (counts["forwards"] + counts["forwards_saved"])
    assert served.accepted_tokens / served.draft_tokens > deep_stock.accepted_tokens / deep_stock.draft_tokens
    assert counts["tails"] > 0
    assert counts["accepted_tail_tokens"] > 0
    assert counts["accepted_drafts"] + counts["accepted_tail_tokens"] == served.accepted_tokens


def test_off_means_stock(engine, patched):
    served = real.serve(engine, SHORT, site=patched, env={"RADIANCE_DYNAMIC_DRAFT": "0"})
    assert served.controller == {}
    assert served.draft_tokens == served.drafts * SHORT.num_speculative_tokens


def test_a_fault_of_ours_harms_no_request(engine, stock):
    with real.patched_overlay(engine) as site:
        module = site / "vllm" / "_radiance" / "match.py"
        module.write_text(module.read_text() + '\n\ndef match(*_):\n    raise RuntimeError("planted")\n')
        served = real.serve(engine, JOB, site=site, env=DRAFT)
    assert_same_text(engine, stock, served)
    assert served.controller["proposals"] == 0
    assert served.draft_tokens == served.drafts * JOB.num_speculative_tokens
