"""Tensor parallelism on the real engine: the text of one rank, and one decision for all (issue 6)."""

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from tests.e2e.test_text import assert_same_text
from tests.real import engine as real
from tests.real.engine import Served
from tests.real.jobs import DRAFT, SHORT

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]

# The model's 9 heads and 3 KV heads do not go by two.
RANKS = 3
SETTINGS = {
    **DRAFT,
    # One thread a rank: they share the cores.
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # Ranks that wait for each other are a failure by then.
    "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "120",
}
FEW = replace(SHORT, prompts=SHORT.prompts[:6], max_tokens=32)
# Appended to the payload: one rank's shard cannot be reduced from its twentieth slot on.
FAULT = """
_sound, _slots = reduce, [0]


def reduce(logits, first):
    _slots[0] += 1
    if dist.get_rank() == 1 and logits.shape[1] and _slots[0] >= 20:
        raise RuntimeError("planted")
    return _sound(logits, first)
"""


def run(engine: real.Engine, site: Any) -> dict[str, Any]:
    job = {**asdict(FEW), "model": str(engine.model), "ranks": RANKS}
    return json.loads(real.run_inside(engine, "ranks.py", job, site=site, env=SETTINGS))


@pytest.fixture(scope="module")
def one_rank(engine) -> Served:
    return real.serve(engine, FEW)


def assert_one_decision(engine: real.Engine, one_rank: Served, facts: dict[str, Any]) -> None:
    assert_same_text(engine, one_rank, replace(one_rank, tokens=facts["tokens"]))
    first, *others = facts["ranks"]
    assert first["controller"]["proposals"] > 0
    forwards = [forwards for forwards, _ in first["seen"]]
    assert len(set(forwards)) > 1  # as many as the text asked for
    assert sum(forwards) < FEW.num_speculative_tokens * len(forwards)
    for other in others:
        assert other["controller"] is None
        assert [forwards for forwards, _ in other["seen"]] == forwards
        assert other["seen"] == others[0]["seen"]  # their own copies of the drafts, which nobody reads


def test_the_text_of_one_rank_and_one_decision(engine, patched, one_rank):
    facts = run(engine, patched)
    assert_one_decision(engine, one_rank, facts)
    assert [(rank["local"], rank["broken"]) for rank in facts["ranks"]] == [(True, [])] * RANKS


def test_a_shard_that_fails_on_one_rank_makes_all_gather(engine, one_rank):
    with real.patched_overlay(engine) as site:
        module = site / "vllm" / "_radiance" / "shards.py"
        module.write_text(module.read_text() + FAULT)
        facts = run(engine, site)
    assert_one_decision(engine, one_rank, facts)
    broken = [(rank["local"], rank["broken"]) for rank in facts["ranks"]]
    assert broken == [(False, []), (False, ["shard-local drafting"]), (False, [])]
