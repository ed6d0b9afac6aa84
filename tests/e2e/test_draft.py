"""The draft controller on the real engine: the same text from fewer draft forwards (issue 3)."""

from dataclasses import replace

import pytest

from tests.e2e.test_text import assert_same_text
from tests.real import engine as real
from tests.real.engine import Served
from tests.real.jobs import DRAFT, JOB, NARROW, SHORT
from tests.real.prompts import PROMPTS

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]

DEEP = replace(JOB, num_speculative_tokens=8)
KINDS = list(PROMPTS)
# One kind at a time, so that what is counted is that kind's.
BY_KIND = replace(DEEP, prompts=[prompt for kind in KINDS for prompt in PROMPTS[kind]], together=len(PROMPTS["code"]))


@pytest.fixture(scope="module")
def deep_stock(engine):
    return real.serve(engine, BY_KIND)


@pytest.mark.parametrize(
    ("job", "settings"),
    [
        (replace(JOB, num_speculative_tokens=1), DRAFT),
        (replace(JOB, num_speculative_tokens=3, disable_padded_drafter_batch=True), DRAFT),
        (JOB, DRAFT),
        (replace(DEEP, disable_padded_drafter_batch=True), DRAFT | NARROW),
    ],
    ids=["K=1", "K=3 unpadded", "K=4", "K=8 unpadded with narrow widths"],
)
def test_the_text_is_stocks(engine, patched, stock, job, settings):
    served = real.serve(engine, job, site=patched, env=settings)
    assert_same_text(engine, stock, served)
    assert served.controller["proposals"] > 0


def table(stock: Served, served: Served) -> str:
    """Return draft forwards and accepted tokens by kind, stock's before ours."""
    lines = [f"{'':<12}{'forwards':>16}{'accepted':>16}{'a forward':>16}"]
    for kind, left, right in zip([*KINDS, "all"], by_kind(stock), by_kind(served), strict=True):
        cells = [f"{left[name]:>8}{right[name]:>8}" for name in ("forwards", "accepted_tokens")]
        cells.append(f"{yield_of(left):>8.2f}{yield_of(right):>8.2f}")
        lines.append(f"{kind:<12}" + "".join(cells))
    return "\n".join(lines)


def by_kind(served: Served) -> list[dict[str, int]]:
    """Return the counts of each kind, and those of all."""
    return [*served.batches, {name: sum(batch[name] for batch in served.batches) for name in served.batches[0]}]


def yield_of(counts: dict[str, int]) -> float:
    return counts["accepted_tokens"] / counts["forwards"]


def test_deep_drafting_takes_a_fifth_fewer_forwards_and_each_brings_no_less(engine, patched, deep_stock):
    served = real.serve(engine, BY_KIND, site=patched, env=DRAFT)
    print(table(deep_stock, served))
    assert_same_text(engine, deep_stock, served)
    stock_counts, counts = by_kind(deep_stock), by_kind(served)
    assert counts[-1]["forwards"] <= 0.8 * stock_counts[-1]["forwards"]
    for kind, left, right in zip([*KINDS, "all"], stock_counts, counts, strict=True):
        assert yield_of(right) >= yield_of(left), kind
    own = served.controller
    assert own["forwards"] == counts[-1]["forwards"]  # the controller counts what the model ran
    assert own["tails"] > 0
    assert own["accepted_tail_tokens"] > 0
    assert own["accepted_drafts"] + own["accepted_tail_tokens"] == served.accepted_tokens


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
