"""The V2 runner's depth on vLLM's own schedulers and graph manager (tests/real/inside/plan.py)."""

import json
from typing import Any

import pytest

from tests.real import engine as real

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]

K = 8
COUNTS = (0, 1, 2, 3, 4, 6, 8)
both = pytest.mark.parametrize("kind", ["sync", "async"])


def run(engine: real.Engine, **options: Any) -> dict[str, Any]:
    return json.loads(real.run_inside(engine, "plan.py", {"model": str(engine.model)}, **options))


@pytest.fixture(scope="module")
def facts(engine, patched) -> dict[str, Any]:
    return run(engine, site=patched, env={})


@pytest.fixture(scope="module")
def off(engine, patched) -> dict[str, Any]:
    return run(engine, site=patched, env={"RADIANCE_DYNAMIC_DRAFT": "0"})


@pytest.fixture(scope="module")
def stock(engine) -> dict[str, Any]:
    return run(engine, site=None, env={})


@both
def test_every_step_has_a_plan_and_one_row_count(facts, kind):
    seen = facts[kind]
    assert len(seen["plans"]) == len(seen["steps"])
    for (forwards, drafted), rows in zip(seen["plans"], seen["steps"], strict=True):
        assert 0 <= forwards <= K
        assert 0 <= drafted <= K
        # A request's first step after its prompt, and its last before its end, have their own.
        widths = {width for width in rows.values() if width}
        assert len(widths) <= 1 or set(rows) != {"good", "bad"}, rows
    assert len({tuple(plan) for plan in seen["plans"]}) > 3


@both
def test_rows_without_drafts_behind_them_are_never_verified(facts, kind):
    """Issue 4: rows of a step must not exceed what was written in the step before."""
    seen = facts[kind]
    for (_, drafted), rows in zip(seen["plans"][2:], seen["steps"][2:], strict=True):
        assert drafted or not any(rows.values()), (drafted, rows)
    shipped = [forwards for forwards, _ in seen["plans"]]
    assert [drafted for _, drafted in seen["plans"]][1:] == shipped[:-1]


def test_text_that_accepts_nothing_is_drafted_less_and_less(facts):
    forwards = [forwards for forwards, _ in facts["never"]["plans"]]
    assert sum(forwards[-40:]) < 40
    assert sum(forwards[-40:]) < sum(forwards[:40])


def test_a_request_that_ended_in_flight_has_no_answer(facts):
    """Found by the benchmark: the feature was off from the first such step on."""
    before, after = facts["aborted"]["planned"]
    assert (before >= 9, after) == (True, 20 - 1 - before)


@both
def test_no_token_is_lost(facts, stock, kind):
    """A request that accepts nothing gains a token a step, whatever was planned."""
    assert facts[kind]["tokens"][1] == stock[kind]["tokens"][1]
    assert facts[kind]["tokens"][0] > facts[kind]["tokens"][1]


def test_switched_off_all_is_as_stock(off, stock):
    assert off == stock
    assert {tuple(rows.items()) for rows in off["sync"]["steps"][1:20]} == {(("good", K), ("bad", K))}


def test_every_row_count_has_a_full_graph_for_every_batch_that_fits(facts):
    """Found with vLLM's batch-size schedule, where batches of 5, 9, 11 and 13 lose their graphs."""
    for name, (mode, width, tokens) in facts["graphs"]["found"].items():
        batch, rows = map(int, name.split("x"))
        if rows in COUNTS and batch * (1 + rows) <= 448:
            assert (mode, width) == ("FULL", 1 + rows), (name, mode, width)
            assert tokens < 1.3 * batch * (1 + rows) + 9, (name, tokens)
        elif rows not in COUNTS:
            assert mode != "FULL", name


def test_stock_has_graphs_for_the_full_width_alone(stock):
    full = [name for name, (mode, _, _) in stock["graphs"]["found"].items() if mode == "FULL"]
    assert full
    assert {name.rpartition("x")[2] for name in full} == {str(K)}


def test_widths_between_are_captured_sparsely(facts, stock):
    assert facts["graphs"]["full"] < 5 * stock["graphs"]["full"]  # 7 widths, for one
