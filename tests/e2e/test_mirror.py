"""The controller's tokens are the request's, step by step, on the real engine (issue 3, points 2 and 6)."""

import json
import math
from typing import Any

import pytest

from tests.real import engine as real
from tests.real.jobs import DRAFT
from tests.real.prompts import mixed

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]

# More than three blocks of 32 tokens, so that requests share what is cached of it.
BEFORE = (
    "The following instructions are given by a careful teacher to a class of twelve pupils, who are asked to write "
    "down an answer in their own words, to read it twice, and to hand it in before the bell rings. Please answer in "
    "the same way: think first, write one short paragraph or one small piece of code, add nothing that was not asked "
    "for, and do not explain what you did or why you did it. If you are not sure what is meant, choose what seems the "
    "most likely and go on. Here is what you are asked to do. "
)
# Appended to the payload: this step's tokens are written one place too far.
LATE = """
_sound = Context.append


def _late(self, sampled, counts, totals):
    self._known = self._known + (self._known >= 0).int()
    _sound(self, sampled, counts, totals)


Context.append = _late
"""


def run(engine: real.Engine, site: Any, *, padded: bool) -> dict[str, Any]:
    job = {"model": str(engine.model), "prompts": [BEFORE + prompt for prompt in mixed()[:14]], "padded": padded}
    return json.loads(real.run_inside(engine, "mirror.py", job, site=site, env=DRAFT))


@pytest.fixture(scope="module", params=[True, False], ids=["padded", "unpadded"])
def facts(request, engine, patched) -> dict[str, Any]:
    return run(engine, patched, padded=request.param)


def test_the_tokens_and_their_continuation_are_the_requests_own_in_every_step(facts):
    assert facts["wrong"] == []
    assert facts["compared"] > 200
    assert facts["continuations"] > 30
    # All of these happened while it was compared.
    assert facts["requests"] == 14
    for name in ("preempted", "resumed", "moved", "prefix_hits", "chunked"):
        assert facts[name] > 0, name


def test_l1_rows_by_place_hold_other_requests_tokens_where_rows_by_request_do_not(facts):
    assert facts["seed_foreign"] > 0
    assert facts["wrong"] == []


def test_l2_the_copy_is_there_before_vllm_measures_its_memory(facts):
    """The seed made it at the first proposal, after the KV cache had been given all that was left."""
    assert facts["bytes_before_profiling"] == 4 * 4 * (256 + 4 + 1)


def test_what_the_controller_does_not_do_is_refused_by_name(facts):
    assert facts["refusals"] == {
        "nothing": None,
        "tensor parallel": None,  # asked for by DRAFT
        "pipeline parallel": "pipeline parallel",
        "data parallel": "data parallel",
        "expert parallel": "expert parallel",
        "parallel drafting": "drafting is parallel",
        "method": "method ngram is neither MTP nor Eagle",
        "probabilistic": "draft_sample_method is probabilistic",
        "local argmax": "the drafter reduces the vocabulary locally (use_local_argmax_reduction)",
        "vocabulary": "drafter and target have different vocabularies",
    }


def test_tensor_parallel_is_left_to_vllm_until_somebody_asks(facts):
    reason = "tensor parallel is not proved on GPUs yet, RADIANCE_DYNAMIC_DRAFT=1 tries it"
    assert facts["by_default"] == [reason, reason]


def forwards_of_a_rank(confidences: list[float], tau: float) -> int:
    """What a rank of the seed launched, deciding by itself from its own floats."""
    product, forwards = 1.0, 0
    while product >= tau and forwards < len(confidences):
        product *= confidences[forwards]
        forwards += 1
    return forwards


def test_l8_ranks_that_decide_alone_part_ways_where_one_that_decides_for_all_cannot(facts):
    """On real ranks: tests/kernels/inside/test_ranks.py, and on the real engine tests/e2e/test_ranks.py."""
    exact = [0.5, 0.5, 0.9]
    noisy = [0.5, math.nextafter(0.5, 0), 0.9]  # one rounding apart, as two orders of a sum are
    tau = 0.25
    assert forwards_of_a_rank(exact, tau) != forwards_of_a_rank(noisy, tau)
    assert facts["refusals"]["tensor parallel"] is None


def verified(target: list[float], drafter: list[float], draft: int) -> list[float]:
    """Return the distribution of the token that rejection sampling puts out for a draft scored against `drafter`."""
    accepted = min(1.0, target[draft] / drafter[draft])
    left = [max(wanted - had, 0.0) for wanted, had in zip(target, drafter, strict=True)]
    return [(token == draft) * accepted + (1 - accepted) * rest / sum(left) for token, rest in enumerate(left)]


def test_l9_a_tail_scored_against_draft_probabilities_is_biased_so_they_are_refused(facts):
    target, drafter, tail = [0.5, 0.3, 0.2], [0.1, 0.8, 0.1], 0
    assert verified(target, drafter, tail) == [1.0, 0.0, 0.0]  # the seed's: always the tail's token
    assert verified(target, [1.0, 0.0, 0.0], tail) == pytest.approx(target)  # greedy drafts are scored as certain
    assert facts["refusals"]["probabilistic"] == "draft_sample_method is probabilistic"


def test_a_slot_takes_one_copy_to_the_host_at_most_and_the_last_of_the_schedule_none(facts):
    counts = facts["controller"]
    # The default schedule asks for as many slots as there are drafts: the fourth is never asked about.
    assert 0 < counts["copies"] <= counts["forwards"]
    assert counts["copies"] <= counts["steps"] * 3


def test_tokens_in_the_wrong_place_are_caught(engine):
    with real.patched_overlay(engine) as site:
        module = site / "vllm" / "_radiance" / "context.py"
        module.write_text(module.read_text() + LATE)
        assert len(run(engine, site, padded=True)["wrong"]) > 100
