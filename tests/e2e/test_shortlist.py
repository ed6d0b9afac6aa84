"""The short draft head on a real draft model and vLLM's own speculator (tests/real/inside/shortlist.py)."""

import json
from typing import Any

import pytest

from tests.real import engine as real
from tests.real.prompts import mixed

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]

SIZE = 4096
# Steps between two looks at the requests' tokens (kernels/shortlist.py).
EVERY = 48


@pytest.fixture(scope="module")
def facts(engine, patched) -> dict[str, Any]:
    job = {"model": str(engine.model), "prompts": mixed()[:8], "size": SIZE}
    # The draft model is served on V1, and then asked by V2's speculator.
    env = {"RADIANCE_DRAFT_VOCAB": str(SIZE), "VLLM_USE_V2_MODEL_RUNNER": "0"}
    return json.loads(real.run_inside(engine, "shortlist.py", job, site=patched, env=env))


def agreement(first: list[int], other: list[int]) -> float:
    return sum(a == b for a, b in zip(first, other, strict=True)) / len(first)


@pytest.mark.parametrize("list_", ["first", "learnt"])
def test_the_speculator_drafts_what_the_whole_head_finds_best_of_the_list(facts, list_):
    assert facts["states"] > 300
    assert agreement(facts[list_], facts[f"{list_}_wanted"]) > 0.99


def test_the_most_common_tokens_come_first_and_then_those_of_the_requests(facts):
    assert facts["first_ids"]
    assert len(set(facts["ids"])) == SIZE
    assert set(facts["contexts"]) <= set(facts["ids"])
    assert not set(facts["contexts"]) <= set(range(SIZE))
    assert facts["rows_are_the_heads"]


def test_most_of_what_the_whole_head_drafts_is_still_drafted(facts):
    """A twelfth of the vocabulary; a list by id alone loses more."""
    learnt = agreement(facts["learnt"], facts["stock"])
    print(f"of the whole head's drafts: by id {agreement(facts['first'], facts['stock']):.3f}, learnt {learnt:.3f}")
    assert learnt > 0.85
    assert learnt > agreement(facts["first"], facts["stock"])


def test_the_list_is_made_at_once_and_then_now_and_then(facts):
    assert facts["looks"] == [0, EVERY, 2 * EVERY]


def test_the_draft_model_is_left_as_it_was(facts):
    """A weight update looks for the head by its name, and must find all of it."""
    assert facts["untouched"]


def test_heads_that_are_not_known_stay_whole(facts):
    other_use = "the draft model uses its output head in another way"
    assert facts["refused"] == {
        "quantized": "the output head is quantized (object)",
        "other order": other_use,
        "by place": other_use,
        "fixed shape": f"{other_use} (IndexError)",
        "no weights": "the output head has no weights yet",
        "smaller": "the output head is not of the whole vocabulary",
    }


def test_a_fault_leaves_the_draft_to_vllm_and_the_list_to_the_graphs_that_read_it(facts):
    assert facts["broken"] == facts["stock"]
    assert facts["broken_features"] == ["short draft head"]
    assert facts["kept"]
