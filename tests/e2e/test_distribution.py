"""Sampled text is the target's: at temperature 1, a patched engine draws as the target alone does (issue 3)."""

from dataclasses import replace

import pytest

from tests.real import engine as real
from tests.real import homogeneity
from tests.real.engine import Job, Served
from tests.real.jobs import DRAFT

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]

# Repeats as tokens of the model of tests/model, which it neither ends nor continues for certain.
REPEATS = (
    (10407, 28, 9805, 28, 9805, 28, 9805),  # yes, yes, yes, yes
    (32, 28, 32, 28, 32, 28),  # 0,0,0,
    (29, 253, 198, 29, 253, 198, 29),  # - a\n- a\n-
    (3143, 284, 540, 284, 540, 284),  # more and more and more and
)
EACH = 512
SAMPLES = Job(
    [repeat for repeat in REPEATS for _ in range(EACH)],
    num_speculative_tokens=2,
    max_num_seqs=128,
    max_tokens=3,
    temperature=1.0,
)
# One chance in four thousand that one distribution deviates so far.
LIMIT = 3.5


def by_repeat(served: Served) -> list[list[homogeneity.Continuation]]:
    tokens = [tuple(kept) for kept in served.tokens]
    return [tokens[start : start + EACH] for start in range(0, len(tokens), EACH)]


def deviation(left: list[list[homogeneity.Continuation]], right: list[list[homogeneity.Continuation]]) -> float:
    found = [homogeneity.statistic(*pair) for pair in zip(left, right, strict=True)]
    return homogeneity.deviation(sum(squares for squares, _ in found), sum(freedom for _, freedom in found))


def leaning(continuations: list[homogeneity.Continuation], repeat: tuple[int, ...]) -> list[homogeneity.Continuation]:
    """Take the repeat's own continuation in place of every 8th sample, as a verifier would that let tails through."""
    period = next(size for size in range(1, 9) if repeat[-3:] == repeat[-3 - size : len(repeat) - size])
    tail = (repeat[-period:] * 3)[:3]
    return [tail if number % 8 == 0 else kept for number, kept in enumerate(continuations)]


def test_sampled_text_has_the_distribution_of_stocks(engine, patched):
    # No cap, and other dice than stock's: no sample equals its counterpart for that reason alone.
    settings = DRAFT | {"RADIANCE_DRAFT_SCHEDULE": ""}
    stock = real.serve(engine, replace(SAMPLES, num_speculative_tokens=0))
    served = real.serve(engine, replace(SAMPLES, seed=1_000_000), site=patched, env=settings)
    counts = served.controller
    print(f"tails {counts['tails']}, tokens of them {counts['tail_tokens']}, accepted {counts['accepted_tail_tokens']}")
    print(f"deviation {deviation(by_repeat(stock), by_repeat(served)):.2f}, limit {LIMIT}")
    assert len(served.tokens) >= 2000
    # Tails are verified often, and both taken and refused.
    assert counts["tails"] > 500
    assert 0.2 * counts["tail_tokens"] < counts["accepted_tail_tokens"] < 0.9 * counts["tail_tokens"]
    assert deviation(by_repeat(stock), by_repeat(served)) < LIMIT
    leaned = [leaning(kept, repeat) for kept, repeat in zip(by_repeat(served), REPEATS, strict=True)]
    assert deviation(by_repeat(stock), leaned) > LIMIT
