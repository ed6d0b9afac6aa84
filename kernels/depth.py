"""How many forwards to draft with and how many rows to verify: what is expected to be accepted against what it costs.

Pure functions over numbers, decided before a step from results two steps old, one
answer for the whole batch: decode graphs hold a single width, and all ranks take the
answer from the scheduler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .cost import Costs

# Drafting starts again for at least this much more: its first forward has no rows yet, and a
# hope that is just enough is mostly a hope.
RESTART = 1.1


@dataclass(frozen=True)
class Outlook:
    """What is expected of a batch of B requests, as probabilities, each [B] float64.

    first: that the drafter's first token is accepted. later: that the next one is, the ones
    before it accepted. copied: that the verbatim continuation takes over after a right first
    token. held: that its next token is right then.
    """

    first: np.ndarray
    later: np.ndarray
    copied: np.ndarray
    held: np.ndarray

    def slots(self, width: int) -> Slots:
        """Return the accepted tokens expected at each of `width` slots over the batch."""
        power = np.arange(width)
        copying = (self.first * self.copied)[:, None] * self.held[:, None] ** power
        drafting = (self.first * (1.0 - self.copied))[:, None] * self.later[:, None] ** power
        return Slots(self.first.shape[0], copying.sum(axis=0) + drafting.sum(axis=0), copying.sum(axis=0))


@dataclass(frozen=True)
class Slots:
    """Accepted tokens expected at each of K slots over a batch of `batch` requests, [K] float64.

    drafted: at a slot that the drafter has reached. copied: at a slot past the drafter.
    """

    batch: int
    drafted: np.ndarray
    copied: np.ndarray

    def scaled(self, batch: int) -> Slots:
        """Return the same expectations for a batch of another size."""
        share = batch / self.batch
        return Slots(batch, self.drafted * share, self.copied * share)

    def at(self, rows: int, forwards: int) -> np.ndarray:
        """Return what is expected of `rows` slots, the first `forwards` of which the drafter has reached, [rows]."""
        reached = np.arange(rows) < forwards
        return np.where(reached, self.drafted[:rows], self.copied[:rows]) if forwards else np.zeros(rows)

    def accepted(self, rows: np.ndarray, forwards: np.ndarray) -> np.ndarray:
        """Return the sums of `at` for broadcast arrays of rows and forwards."""
        drafted, copied = (np.concatenate([[0.0], slots.cumsum()]) for slots in (self.drafted, self.copied))
        reached = np.minimum(rows, forwards)
        return np.where(forwards > 0, drafted[reached] + copied[rows] - copied[reached], 0.0)


@dataclass(frozen=True)
class Choice:
    """forwards: draft forwards of this step, for the next one's rows. rows: drafts of each request verified now."""

    forwards: int
    rows: int


def choose(slots: Slots, costs: Costs, widths: Sequence[int], most: int, drafted: int) -> Choice:
    """Choose by tokens a second.

    widths: the row counts that have a decode graph, ascending. most: forwards at the most.
    drafted: forwards behind the drafts at hand.
    """
    batch, rows = slots.batch, np.array(widths)
    # Rows that cannot be none hold drafts in any case: at least one is made.
    depths = np.arange(min(widths[0], 1), most + 1)[:, None]
    # [depths, widths]: tokens a second if every step were like this.
    rate = (batch + slots.accepted(rows, depths)) / (costs.step + costs.row * batch * rows + costs.forward * depths)
    by_depth = rate.max(axis=1)
    best = int(by_depth.argmax())
    if not drafted and by_depth[best] < RESTART * by_depth[0]:
        best = 0
    price = float(rate[best].max()) * costs.row * batch
    now = slots.accepted(rows, np.full_like(rows, drafted)) - price * rows
    return Choice(forwards=int(depths[best, 0]), rows=widths[int(now.argmax())])
