"""What a step costs: learnt from the steps themselves, since it depends on model, card, batch and context alike."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass

import numpy as np

# Before anything is measured, relative to a step without drafts: one draft forward, and one
# verify row of one request, which gets cheaper as the batch fills the card (an H200 with an
# 8 B model, tests/bench/RESULTS.md).
FORWARD_SHARE = 0.11
ROW_SHARE = 0.006
# How far from that a model may be, and from what another batch size has shown; how much one step differs
# from the next: standard deviations of step, row and forward, relative to the guess, and to the step.
DOUBTS, NEAR_DOUBTS = np.array([0.5, 1.5, 3.0]), np.array([0.5, 1.0, 0.5])
NOISE = 0.08
# A step this many times the noise away counts less and less: a compilation, a collection,
# a result that waited for the one before.
DISTURBED, ROUNDS = 2.0, 4
# Steps remembered of a batch size, half of whose weight is in the last HALF, and steps between two fits.
MEMORY, HALF, REFIT = 192, 48, 32
# Steps, at whatever batch size, that halve a step's weight: what a size cost while other processes started must not
# outlive that because the size is rare, nor what drafts cost because there are none now (issue 4). Steps after which
# a fit is made anew even so.
FADE, OLD = 400, 100
# Steps, so weighed, that a batch size speaks for itself with, and may speak for others with.
ENOUGH = 16.0
# So many steps in a row whose median is this far from what was expected: another load, another clock.
CHANGE_STEPS, CHANGE = 16, 0.35
# A slope is believed to be this much smaller than its guess at the most (a host that cannot
# keep up hides what drafts cost the card), and as many times larger as there are steps to show it,
# if there are recent ones with drafts.
SMALLER, LARGER_EVERY = 0.6, 12


@dataclass(frozen=True)
class Costs:
    """Seconds: `step` without drafts, `row` for one more verify row of one request, `forward` for one draft forward."""

    step: float
    row: float
    forward: float

    def of(self, batch: int, rows: int, forwards: int) -> float:
        """Return the seconds of a step that verifies `rows` drafts of each of `batch` requests."""
        return self.step + self.row * batch * rows + self.forward * forwards


# 1, rows of the whole batch, forwards, the seconds they took, and the model's clock then.
Step = tuple[float, float, float, float, int]


class _Fit:
    """The steps of one batch size, and the costs fitted to them around a guess."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        # Steps with drafts and without, apart: a server that stopped drafting would forget why.
        self.steps: tuple[deque[Step], deque[Step]] = deque(maxlen=MEMORY), deque(maxlen=MEMORY)
        self.seen = 0
        self.surprises: deque[float] = deque(maxlen=CHANGE_STEPS)
        self.costs: Costs | None = None
        self.fitted_at = 0
        # Steps with drafts, each by how recent it was at the last of them, and when that was.
        self._drafting, self._at = 0.0, 0

    def add(self, batch: int, rows: int, forwards: int, seconds: float, clock: int) -> None:
        if self._changed(batch, rows, forwards, seconds):
            self.__init__(batch)  # type: ignore[misc]
        self.steps[forwards > 0].append((1.0, batch * rows, forwards, seconds, clock))
        self.seen += 1
        if forwards:
            self._drafting, self._at = self.evidence(clock) + 1.0, clock

    @property
    def due(self) -> bool:
        """Whether to fit anew: often while there is little, since the first steps of a process are its strangest."""
        return self.seen % REFIT == 0 or self.seen in (2, 4, 8, 16)

    def evidence(self, clock: int) -> float:
        """Return the steps with drafts, each counted by how recent it is."""
        return float(self._drafting * _faded(clock - self._at))

    def _changed(self, batch: int, rows: int, forwards: int, seconds: float) -> bool:
        """Whether the last steps took something else altogether than was learnt, so that all of it is worthless."""
        if self.costs is None:
            return False
        self.surprises.append(seconds / self.costs.of(batch, rows, forwards))
        if len(self.surprises) < CHANGE_STEPS or self.seen < MEMORY // 2:
            return False
        # Every step asks; numpy's median takes forty times as long for so few.
        return abs(statistics.median(self.surprises) - 1.0) > CHANGE

    def fit(self, clock: int, near: _Fit | None) -> None:
        """Fit the costs anew. near: another batch size, to guess by in place of the constants."""
        guess, doubts = Costs(1.0, ROW_SHARE / self.batch**0.5, FORWARD_SHARE), DOUBTS
        if near is not None and near.costs is not None:
            known = near.costs
            row = known.row / known.step * (near.batch / self.batch) ** 0.5
            guess, doubts = Costs(1.0, row, known.forward / known.step), NEAR_DOUBTS
        shares = np.array([guess.step, guess.row, guess.forward])
        doubt = doubts * shares
        table = np.array([*self.steps[0], *self.steps[1]])
        features, seconds = table[:, :3], table[:, 3]
        fresh = np.concatenate([0.5 ** (np.arange(len(steps))[::-1] / HALF) for steps in self.steps])
        fresh *= _faded(clock - table[:, 4])
        # In units of the level, so that one set of doubts fits every model and card.
        level = _median(seconds / (features @ shares), fresh)
        if near is not None and near.costs is not None and fresh.sum() < ENOUGH:
            level = near.costs.step
        relative = seconds / level
        expected = np.full_like(relative, _median(relative, fresh))
        for _ in range(ROUNDS):
            away = np.abs(relative - expected) / (NOISE * expected)
            weighed = features * (fresh / (NOISE * np.maximum(away / DISTURBED, 1.0)))[:, None]
            gram = weighed.T @ features / NOISE + np.diag(1.0 / doubt**2)
            fitted = np.linalg.solve(gram, weighed.T @ relative / NOISE + shares / doubt**2)
            expected = np.maximum(features @ fitted, 0.05)
        step, row, forward = map(float, fitted)
        step = max(step, 0.1 * _median(relative, fresh))
        larger = 1.0 + self.seen / LARGER_EVERY * min(self.evidence(clock) / ENOUGH, 1.0)
        row_guess, forward_guess = guess.row * step, guess.forward * step
        row = min(max(row, SMALLER * row_guess), larger * row_guess)
        forward = min(max(forward, SMALLER * forward_guess), larger * forward_guess)
        self.costs, self.fitted_at = Costs(step * level, row * level, forward * level), clock


def _faded(steps: float | np.ndarray) -> float | np.ndarray:
    """Return the weight of what is so old."""
    return 0.5 ** (steps / FADE)


def _median(values: np.ndarray, weights: np.ndarray) -> float:
    """Return the weighted median."""
    order = np.argsort(values)
    total = weights[order].cumsum()
    return float(values[order][np.searchsorted(total, total[-1] / 2)])


class CostModel:
    """Step costs by batch size, in buckets of powers of two.

    A size of which little is known, or nothing of late, is guessed by the one of which most
    is. The clock counts steps.
    """

    def __init__(self) -> None:
        self._fits: dict[int, _Fit] = {}
        self._clock = 0

    def observe(self, batch: int, rows: int, forwards: int, seconds: float) -> None:
        """Take in one step: `batch` requests verified `rows` drafts each, `forwards` were launched before it."""
        self._clock += 1
        bucket = batch.bit_length()
        if bucket not in self._fits:
            self._fits[bucket] = _Fit(batch)
        fit = self._fits[bucket]
        fit.add(batch, rows, forwards, seconds, self._clock)
        if fit.due:
            fit.fit(self._clock, self._near(fit))

    def costs(self, batch: int) -> Costs | None:
        """Return what a batch of this size costs; None before enough steps of any."""
        fit = self._fits.get(batch.bit_length())
        if fit is None:
            known = {bucket: fit.costs for bucket, fit in self._fits.items() if fit.costs is not None}
            near = min(known, key=lambda bucket: abs(bucket - batch.bit_length()), default=None)
            return None if near is None else known[near]
        if fit.costs is not None and self._clock - fit.fitted_at > OLD:
            fit.fit(self._clock, self._near(fit))
        return fit.costs

    def known(self, batch: int, enough: int) -> bool:
        """Whether this size, or one it can be guessed by, had at least `enough` steps."""
        fit = self._fits.get(batch.bit_length())
        return (fit is not None and fit.seen >= enough) or self._near(fit) is not None

    def _near(self, fit: _Fit | None) -> _Fit | None:
        """Return the other size of which most is known, if more than of this one."""
        own = fit.evidence(self._clock) if fit is not None else 0.0
        others = [(other.evidence(self._clock), other) for other in self._fits.values() if other is not fit]
        best, other = max(others, key=lambda pair: pair[0], default=(0.0, None))
        return other if best >= ENOUGH and best > own else None

    def __str__(self) -> str:
        """Return the costs by batch size in milliseconds, for the log."""
        return "; ".join(
            f"B>={1 << bucket - 1} step {1e3 * fit.costs.step:.2f} row {1e3 * fit.costs.row:.3f} "
            f"forward {1e3 * fit.costs.forward:.2f} ms"
            for bucket, fit in sorted(self._fits.items())
            if fit.costs is not None
        )
