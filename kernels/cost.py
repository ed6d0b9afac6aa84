"""What a step costs: learnt from the steps themselves, since it depends on model, card, batch and context alike."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

# Before anything is measured, relative to a step without drafts: one draft forward, and one
# verify row of one request, which gets cheaper as the batch fills the card (an H200 with an
# 8 B model, tests/bench/RESULTS.md).
FORWARD_SHARE = 0.11
ROW_SHARE = 0.006
# How far from that a model may be, and how much one step differs from the next: standard
# deviations, relative to the guess and to the step.
FORWARD_DOUBT, ROW_DOUBT, STEP_DOUBT = 3.0, 1.5, 0.5
NOISE = 0.08
# A step this many times the noise away counts less and less: a compilation, a collection,
# a result that waited for the one before.
DISTURBED, ROUNDS = 2.0, 5
# Steps remembered of a batch size, half of whose weight is in the last HALF, and steps between two fits.
MEMORY, HALF, REFIT = 192, 48, 16
# Steps without drafts that halve what is known of steps with them.
IDLE_HALF = 600
# So many steps in a row whose median is this far from what was expected: another load, another clock.
CHANGE_STEPS, CHANGE = 16, 0.35
# A slope is believed to be this much smaller than its guess at the most (a host that cannot
# keep up hides what drafts cost the card), and as many times larger as there are steps to show it.
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


# 1, rows of the whole batch, forwards, and the seconds they took.
Step = tuple[float, float, float, float]


class _Fit:
    """The steps of one batch size, and the costs fitted to them around a guess."""

    def __init__(self, batch: int) -> None:
        self.shares = np.array([1.0, ROW_SHARE / batch**0.5, FORWARD_SHARE])
        self.doubts = np.array([STEP_DOUBT, ROW_DOUBT, FORWARD_DOUBT]) * self.shares
        # Steps with drafts and without, apart: a server that stopped drafting would forget why.
        self.steps: tuple[deque[Step], deque[Step]] = deque(maxlen=MEMORY), deque(maxlen=MEMORY)
        self.seen = 0
        self.surprises: deque[float] = deque(maxlen=CHANGE_STEPS)
        self.last = False
        self.drafted = 0
        self.costs: Costs | None = None

    def add(self, batch: int, rows: int, forwards: int, seconds: float) -> None:
        if self._changed(batch, rows, forwards, seconds):
            self.__init__(batch)  # type: ignore[misc]
        self.steps[forwards > 0].append((1.0, batch * rows, forwards, seconds))
        self.last = forwards > 0
        self.seen += 1
        if forwards:
            self.drafted = self.seen
        # Often while there is little, since the first steps of a process are its strangest.
        if self.seen % REFIT == 0 or self.seen in (2, 4, 8):
            self.costs = self._fitted()

    def _changed(self, batch: int, rows: int, forwards: int, seconds: float) -> bool:
        """Whether the last steps took something else altogether than was learnt, so that all of it is worthless."""
        if self.costs is None:
            return False
        self.surprises.append(seconds / self.costs.of(batch, rows, forwards))
        if len(self.surprises) < CHANGE_STEPS or self.seen < MEMORY // 2:
            return False
        return abs(float(np.median(self.surprises)) - 1.0) > CHANGE

    def _fitted(self) -> Costs:
        table = np.array([*self.steps[0], *self.steps[1]])
        features, seconds = table[:, :3], table[:, 3]
        fresh = np.concatenate([0.5 ** (np.arange(len(steps))[::-1] / HALF) for steps in self.steps])
        fresh[len(self.steps[0]) :] *= 0.5 ** ((self.seen - self.drafted) / IDLE_HALF)
        latest = np.array([*self.steps[self.last]][-HALF:])
        level = float(np.median(latest[:, 3] / (latest[:, :3] @ self.shares)))
        # In units of the level, so that one set of doubts fits every model and card.
        relative = seconds / level
        expected = np.full_like(relative, np.median(relative))
        for _ in range(ROUNDS):
            away = np.abs(relative - expected) / (NOISE * expected)
            weighed = features * (fresh / (NOISE * np.maximum(away / DISTURBED, 1.0)))[:, None]
            gram = weighed.T @ features / NOISE + np.diag(1.0 / self.doubts**2)
            fitted = np.linalg.solve(gram, weighed.T @ relative / NOISE + self.shares / self.doubts**2)
            expected = np.maximum(features @ fitted, 0.05)
        step, row, forward = fitted
        step = max(float(step), 0.1)
        larger = 1.0 + self.seen / LARGER_EVERY
        _, row_guess, forward_guess = self.shares * step
        row = min(max(float(row), SMALLER * row_guess), larger * row_guess)
        forward = min(max(float(forward), SMALLER * forward_guess), larger * forward_guess)
        return Costs(step * level, row * level, forward * level)


class CostModel:
    """Step costs by batch size, in buckets of powers of two; a bucket without steps takes its nearest neighbour's."""

    def __init__(self) -> None:
        self._fits: dict[int, _Fit] = {}

    def observe(self, batch: int, rows: int, forwards: int, seconds: float) -> None:
        """Take in one step: `batch` requests verified `rows` drafts each, `forwards` were launched before it."""
        bucket = batch.bit_length()
        if bucket not in self._fits:
            self._fits[bucket] = _Fit(batch)
        self._fits[bucket].add(batch, rows, forwards, seconds)

    def costs(self, batch: int) -> Costs | None:
        """Return what a batch of this size costs; None before enough steps of any."""
        known = {bucket: fit.costs for bucket, fit in self._fits.items() if fit.costs is not None}
        near = min(known, key=lambda bucket: abs(bucket - batch.bit_length()), default=None)
        return None if near is None else known[near]

    def seen(self, batch: int) -> int:
        """Return how many steps of this bucket were observed."""
        fit = self._fits.get(batch.bit_length())
        return fit.seen if fit else 0

    def __str__(self) -> str:
        """Return the costs by batch size in milliseconds, for the log."""
        return "; ".join(
            f"B>={1 << bucket - 1} step {1e3 * fit.costs.step:.2f} row {1e3 * fit.costs.row:.3f} "
            f"forward {1e3 * fit.costs.forward:.2f} ms"
            for bucket, fit in sorted(self._fits.items())
            if fit.costs is not None
        )
