"""The scheduler's side of the V2 runner's depth: plans every step, ships the plan to the workers, learns from results.

One plan a step for all ranks, made where there is one process. Called by the hunks
depth_plan, depth_ship and depth_learn.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import graphs, live, settings
from .cost import CostModel
from .depth import Choice, choose
from .guard import guarded
from .history import Beliefs, History, Verified
from .live import FEATURE

logger = logging.getLogger("vllm.radiance")

# On the scheduler, the Request and the SchedulerOutput.
PLANNER, HISTORY, PLAN = "_radiance_planner", "_radiance_history", "_radiance_plan"
SCHEDULE = "RADIANCE_DRAFT_SCHEDULE"
# Requests whose text is looked at in a step; a large batch is judged by these, as the look costs the host some
# 15 microseconds each.
SAMPLE = 16
# From so many requests on a choice stands for two steps: what one of them is about to do matters less, and the host has
# little time to spare (tests/bench/RESULTS.md).
STANDS = 5
# What a batch size starts with, unless another tells: costs are told apart only by steps that differ.
TRIES = tuple(Choice(f, r) for f, r in ((2, 2), (1, 2), (3, 1), (2, 4), (1, 1), (4, 3), (2, 1), (0, 2)) * 2)
# After so many choices without drafts, a few with some: what made them dear may be over.
IDLE, AGAIN = 512, TRIES[:6]
# Later, every so many choices, something next to the choice.
TRY_EVERY = 32
NEAR: tuple[Callable[[Choice, Sequence[int]], Choice], ...] = (
    lambda choice, widths: Choice(choice.forwards, min((w for w in widths if w > choice.rows), default=choice.rows)),
    lambda choice, _: Choice(choice.forwards + 1, choice.rows),
    lambda choice, _: Choice(choice.forwards, max(choice.rows - 1, 1)),
    lambda choice, _: Choice(max(choice.forwards - 1, 1), choice.rows),
)


class Plan(NamedTuple):
    """What a step was planned to do; shipped with its SchedulerOutput.

    forwards: draft forwards after it. drafted: draft forwards behind the rows it verifies.
    runs: for each request, the class of its repetition's run when the step was planned.
    expected: accepted tokens at each slot over these requests; empty for a trial.
    """

    forwards: int
    drafted: int
    runs: dict[str, int]
    expected: tuple[float, ...] = ()


class Planner:
    """Plans the steps of one scheduler.

    ceiling: the K of the speculative config. row_counts: says which row counts a batch size
    may choose from, ascending.
    """

    def __init__(self, ceiling: int, row_counts: Callable[[int], Sequence[int]]) -> None:
        self.ceiling = ceiling
        self.row_counts = row_counts
        self.costs = CostModel()
        self.beliefs = Beliefs()
        self.timer = Timer()
        self.drafted = 0
        self.plan: Plan | None = None
        self._steps = 0
        # Choices in a row to draft nothing.
        self._idle = 0
        self._log_next = time.monotonic() + settings.current().log_seconds
        # Of the last choice, see Plan.
        self.expected: tuple[float, ...] = ()
        # The last choice and its batch size, if it may stand for one more step.
        self._standing: tuple[Choice, int] | None = None

    def choose(self, histories: Sequence[History], batch: int) -> Choice:
        """Choose for a batch of which `histories` are some, the schedule's cap included."""
        self._steps += 1
        self.expected, self._standing = (), None
        widths, now = self.row_counts(batch), settings.current()
        most = min(self.ceiling, now.depth_cap(batch) if SCHEDULE in now.given else self.ceiling)
        costs = self.costs.costs(batch)
        if costs is None or not self.costs.known(batch, len(TRIES)):
            return self._tried(TRIES[self._steps % len(TRIES)], widths, most)
        if self._idle == IDLE + len(AGAIN):
            self._idle = 0
        slots = self.beliefs.slots(histories, self.ceiling)
        choice = choose(slots.scaled(batch), costs, widths, most, self.drafted)
        self._idle = 0 if choice.forwards else self._idle + 1
        if self._idle > IDLE:
            return self._tried(AGAIN[self._idle - IDLE - 1], widths, most)
        if self._steps % TRY_EVERY == 0 and choice.forwards:
            return self._tried(NEAR[self._steps // TRY_EVERY % len(NEAR)](choice, widths), widths, most)
        self.expected = tuple(slots.at(choice.rows, self.drafted))
        # Rows need drafts behind them: what stands was made for as many as it makes itself.
        if batch >= STANDS and choice.forwards == self.drafted:
            self._standing = choice, batch
        return choice

    def standing(self, batch: int) -> Choice | None:
        """Return the last choice, once, for one more step of the same batch size; None if there is to be a new one."""
        standing, self._standing = self._standing, None
        return standing[0] if standing is not None and standing[1] == batch else None

    def log_now_and_then(self) -> None:
        """Log what steps were found to cost, when the time has come."""
        every, now = settings.current().log_seconds, time.monotonic()
        if every and now >= self._log_next:
            self._log_next = now + every
            logger.info("radiance-patch: draft depth: %s; %s", self.costs, self.beliefs)

    def _tried(self, wanted: Choice, widths: Sequence[int], most: int) -> Choice:
        """Return what of a trial is allowed; rows that hold no drafts would teach nothing."""
        rows = min(wanted.rows, self.ceiling) if self.drafted else 0
        return Choice(
            forwards=max(min(wanted.forwards, most), min(widths[0], 1)),
            rows=max((count for count in widths if count <= rows), default=widths[0]),
        )


class Timer:
    """Turns the arrivals of results into step times.

    The time between two arrivals is a step's when both steps are of the same decoding
    batch: the second's forward, and the drafts made after the first.
    """

    def __init__(self) -> None:
        self._last: tuple[int, int, float] | None = None

    def arrived(self, batch: int, forwards: int, *, decoding: bool, now: float) -> tuple[int, float] | None:
        """Take a step's arrival, at `now` seconds; return the forwards behind it and the seconds it took, if known."""
        before, self._last = self._last, (batch, forwards, now) if decoding else None
        if not decoding or before is None or before[0] != batch:
            return None
        return before[1], now - before[2]


def _on() -> bool:
    return settings.current().dynamic_draft


def planner_of(scheduler: Any) -> Planner | None:
    """Return the scheduler's planner, made at the first call; None where the feature is not live."""
    if not hasattr(scheduler, PLANNER):
        config = scheduler.vllm_config
        live_here = config.use_v2_model_runner and not live.refusal(config)
        planner = Planner(config.num_speculative_tokens, graphs.row_counts(config)) if live_here else None
        setattr(scheduler, PLANNER, planner)
    found: Planner | None = getattr(scheduler, PLANNER)
    return found


@guarded(FEATURE, _on)
def plan(scheduler: Any) -> None:
    """Plan the step about to be scheduled: shorten the running requests' draft lists to the rows chosen.

    Called at the top of Scheduler.schedule, with the results of all but the last two
    steps in under async scheduling. Lists are replaced, never cut in place: under async
    scheduling all requests share one.
    """
    planner = planner_of(scheduler)
    if planner is None:
        return
    planner.beliefs.step += 1
    drafting = [request for request in scheduler.running if not request.is_prefill_chunk]
    if not drafting:
        planner.plan = None
        return
    choice = planner.standing(len(drafting))
    if choice is not None:
        planner.plan = Plan(choice.forwards, planner.drafted, {})
    else:
        looked_at = {request.request_id: _history(request) for request in drafting[:SAMPLE]}
        choice = planner.choose(list(looked_at.values()), len(drafting))
        runs = {name: history.repetition.run_class for name, history in looked_at.items()}
        planner.plan = Plan(choice.forwards, planner.drafted, runs, planner.expected)
    for request in drafting:
        if len(request.spec_token_ids) > choice.rows:
            request.spec_token_ids = request.spec_token_ids[: choice.rows]


@guarded(FEATURE, _on)
def ship(scheduler: Any, scheduler_output: Any) -> None:
    """Send the step's plan along with it (Scheduler._update_after_schedule)."""
    planner = planner_of(scheduler)
    if planner is None or not scheduler_output.num_scheduled_tokens:
        return
    # A step that only prefills was not planned: its requests are drafted for as ever.
    shipped = planner.plan or Plan(planner.choose([History()], 1).forwards, planner.drafted, {})
    setattr(scheduler_output, PLAN, shipped)
    planner.drafted = shipped.forwards


@guarded(FEATURE, _on)
def learn(scheduler: Any, scheduler_output: Any, sampled_token_ids: Any, model_runner_output: Any) -> None:
    """Take in a step's results before the scheduler does (Scheduler.update_from_output)."""
    planner, shipped = planner_of(scheduler), getattr(scheduler_output, PLAN, None)
    if planner is None or shipped is None:
        return
    drafts = scheduler_output.scheduled_spec_decode_tokens
    scheduled = scheduler_output.num_scheduled_tokens
    widths = {len(drafts.get(name, ())) for name in scheduled}
    decoding = len(widths) == 1 and all(scheduled[name] == 1 + len(drafts.get(name, ())) for name in scheduled)
    took = planner.timer.arrived(len(scheduled), shipped.forwards, decoding=decoding, now=time.perf_counter())
    if took is not None:
        planner.costs.observe(len(scheduled), widths.pop(), *took)
    if not sampled_token_ids:
        return
    right = []
    for name, run in shipped.runs.items():
        request, rows = scheduler.requests.get(name), len(drafts.get(name, ()))
        # vLLM asks for no answer of a request that has ended meanwhile, and there may be none.
        at = model_runner_output.req_id_to_index.get(name)
        generated = sampled_token_ids[at] if at is not None else ()
        if request is None or not rows or not generated:
            continue
        right.append(len(generated) - 1)
        history = _history(request)
        planner.beliefs.learn(history, request.all_token_ids, generated, Verified(rows, shipped.drafted, run))
    planner.log_now_and_then()
    if decoding and len(right) == len(shipped.runs):
        planner.beliefs.judge(shipped.expected, shipped.drafted, right)


def _history(request: Any) -> History:
    """Return the request's history, brought up to date; it lives and dies with the request."""
    history: History | None = getattr(request, HISTORY, None)
    if history is None:
        history = History()
        setattr(request, HISTORY, history)
    history.repetition.advance(request.all_token_ids)
    return history
