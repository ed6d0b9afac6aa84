"""How many draft forwards each release's own V2 speculator launches (tests/real/inside/propose.py)."""

import json
from typing import Any

import pytest

from tests.hunks import tools
from tests.real import cache
from tests.real import engine as real
from tests.real.releases import Release, copy_tree

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]

K = 4
WAYS = [f"{launched}, {metadata}" for launched in ("graphs", "eager") for metadata in ("in place", "rebuilt")]
RELEASES = [release for release in tools.since("0.29.0") if release.distribution == "vllm"]


@pytest.fixture(scope="module", params=RELEASES, ids=str)
def release(request) -> Release:
    return request.param


@pytest.fixture(scope="module")
def facts(engine, release) -> dict[str, Any]:
    with cache.scratch("propose") as folder:
        site = copy_tree(release, folder / "site")
        real.patch("apply", "--target", site)
        return json.loads(real.run_inside(engine, "propose.py", {"k": K}, site=site, env={}))


@pytest.mark.parametrize("way", WAYS)
def test_as_many_forwards_are_launched_as_the_step_was_planned_with(facts, way):
    *planned, dummy = facts[way]["steps"]
    assert [step["answered"] for step in planned] == list(range(K + 1))
    assert [step["draft steps"] for step in planned] == [0, 0, 1, 2, 3]
    assert [step["heads"] for step in planned] == [0, 1, 1, 1, 1]
    assert {step["first passes"] for step in planned} == {1}
    assert {tuple(step["shape"]) for step in planned} == {(2, K)}
    assert (dummy["answered"], dummy["draft steps"], dummy["heads"]) == (None, K - 1, 1)


@pytest.mark.parametrize("way", WAYS)
def test_a_graph_holds_one_draft_step(facts, way):
    ((_, held),) = facts[way]["captured draft steps"]
    assert held == {"first passes": 0, "heads": 0, "draft steps": 1, "updates": int("in place" in way)}


@pytest.mark.parametrize("way", WAYS)
def test_the_first_pass_is_captured_once_more_without_its_head(facts, way):
    heads = {bound: held["heads"] for bound, held in facts[way]["captured first passes"]}
    assert heads == {None: 1, 1: 0}


def test_what_attention_reads_is_brought_up_to_date_before_every_replay(facts):
    assert [step["updates"] for step in facts["graphs, in place"]["steps"][: K + 1]] == [0, 0, 1, 2, 3]


def test_tokens_move_to_the_device_where_the_depth_is_live(facts):
    """Where vLLM cannot be asked to keep them there; the last says whether they are in pinned host memory."""
    assert facts["tokens, live True"] == [[3, 64], "torch.int32", "cpu", False]
    assert facts["tokens, live False"][3] is True
