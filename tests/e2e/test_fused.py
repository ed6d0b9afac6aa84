"""The fused layers on a real draft model and its kernels (tests/real/inside/fused.py)."""

import json
from typing import Any

import pytest

from tests.real import engine as real

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]


@pytest.fixture(scope="module")
def facts(engine, patched) -> dict[str, Any]:
    job = {"model": str(engine.model)}
    return json.loads(real.run_inside(engine, "fused.py", job, site=patched, env={"VLLM_USE_V2_MODEL_RUNNER": "0"}))


@pytest.fixture(scope="module")
def off(engine, patched) -> dict[str, Any]:
    env = {"VLLM_USE_V2_MODEL_RUNNER": "0", "RADIANCE_DRAFT_FUSED": "0"}
    return json.loads(real.run_inside(engine, "fused.py", {"model": str(engine.model)}, site=patched, env=env))


def test_every_norm_and_the_rotary_embedding_of_the_drafter_are_fused(facts):
    assert len(facts["layers"]) == 6
    assert facts["fused"] == facts["layers"]
    assert facts["broken"] == []


def test_the_switch_leaves_them_as_they_are(off):
    assert off["fused"] == []


def test_fused_layers_give_the_plain_ones_numbers(facts):
    assert facts["apart"].keys() == set(facts["layers"])
    assert all(0 <= apart < 0.02 for apart in facts["apart"].values()), facts["apart"]


def test_layers_that_vllm_fused_itself_are_left_alone(facts):
    """Here vLLM compiles nothing, as enforce_eager says."""
    assert facts["as served"] == [0, 0]


def test_what_is_compiled_is_left_alone(facts):
    assert facts["compiled"] == [0, 0]


def test_the_targets_layers_are_left_alone(facts):
    assert facts["all the target's"] == [0, 0]
    assert facts["the target's"] == [0, 1]
    in_target, its_way, in_drafter = facts["the target's rotary"]
    assert (in_target, its_way, in_drafter) == (True, "forward_native", False)


def test_a_layer_that_cannot_be_compared_is_left_alone(facts):
    assert facts["no weights yet"] == [4, 1]
    assert set(facts["layers"]) - set(facts["but for those"]) == {"model.mtp_layers.30.token_layernorm"}


def test_nothing_is_fused_where_the_depth_is_not_live(facts):
    assert facts["depth not live"] == []


def test_nothing_is_fused_on_rocm(facts):
    assert facts["on ROCm"] == []


def test_what_a_weight_update_does_to_the_drafters_cache_leaves_the_targets_alone(facts):
    assert facts["the target's cache"] == [True, []]


def test_weight_updates_find_what_they_look_for(facts):
    assert facts["state"]
