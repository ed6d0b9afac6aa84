"""How many forwards to draft with and how many rows to verify: what is expected to be accepted against what it costs.

Pure functions over numbers, decided before a step from results two steps old, one
answer for the whole batch: decode graphs hold a single width, and all ranks take the
answer from the scheduler.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from .cost import Costs

# Drafting starts again for at least this much more: its first forward has no rows yet, and a
# hope that is just enough is mostly a hope.
RESTART = 1.1


class Outlook(NamedTuple):
    """What is expected of one request, as probabilities.

    first: that the drafter's first token is accepted. later: that the next one is, the ones
    before it accepted. copied: that the verbatim continuation takes over after a right first
    token. held: that its next token is right then.
    """

    first: float
    later: float
    copied: float
    held: float


class Slots(NamedTuple):
    """Accepted tokens expected at each of K slots over a batch of `batch` requests.

    drafted: at a slot that the drafter has reached. copied: at a slot past the drafter.
    Lists, not arrays: of so few numbers (K = 8) numpy makes up to three times the work, on the scheduler (issue 4).
    """

    batch: int
    drafted: list[float]
    copied: list[float]

    @classmethod
    def of(cls, outlooks: Sequence[Outlook], width: int) -> Slots:
        """Return what is expected of these requests at each of `width` slots."""
        drafted, copied = [0.0] * width, [0.0] * width
        for first, later, taken, held in outlooks:
            copying = first * taken
            drafting = first - copying
            for slot in range(width):
                copied[slot] += copying
                drafted[slot] += copying + drafting
                copying *= held
                drafting *= later
        return cls(len(outlooks), drafted, copied)

    def scaled(self, batch: int) -> Slots:
        """Return the same expectations for a batch of another size."""
        share = batch / self.batch
        return Slots(batch, [share * value for value in self.drafted], [share * value for value in self.copied])

    def at(self, rows: int, forwards: int) -> list[float]:
        """Return what is expected of `rows` slots, the first `forwards` of which the drafter has reached, [rows]."""
        return [*self.drafted[:forwards], *self.copied[forwards:]][:rows] if forwards else [0.0] * rows

    def accepted(self, widths: Sequence[int], depths: Sequence[int]) -> list[list[float]]:
        """Return the sum of `at` for each number of forwards in `depths`, for each number of rows in `widths`."""
        drafted, copied = ([0.0, *accumulate(values)] for values in (self.drafted, self.copied))
        return [
            [drafted[rows] if rows <= depth else drafted[depth] + copied[rows] - copied[depth] for rows in widths]
            if depth
            else [0.0] * len(widths)
            for depth in depths
        ]


class Choice(NamedTuple):
    """forwards: draft forwards of this step, for the next one's rows. rows: drafts of each request verified now."""

    forwards: int
    rows: int


def choose(slots: Slots, costs: Costs, widths: Sequence[int], most: int, drafted: int) -> Choice:
    """Choose by tokens a second.

    widths: the row counts that have a decode graph, ascending. most: forwards at the most.
    drafted: forwards behind the drafts at hand.
    """
    batch = slots.batch
    # Rows that cannot be none hold drafts in any case: at least one is made.
    depths = range(min(widths[0], 1), most + 1)
    *expected, at_hand = slots.accepted(widths, [*depths, drafted])
    verify = [costs.step + costs.row * batch * rows for rows in widths]
    # By depth: tokens a second at the best width, if every step were like this.
    rates = []
    for depth, accepted in zip(depths, expected, strict=True):
        draft = costs.forward * depth
        rates.append(max([(batch + tokens) / (draft + rest) for tokens, rest in zip(accepted, verify, strict=True)]))
    best = max(rates)
    if not drafted and best < RESTART * rates[0]:
        best = rates[0]
    price = best * costs.row * batch
    gains = [tokens - price * rows for tokens, rows in zip(at_hand, widths, strict=True)]
    return Choice(forwards=depths[rates.index(best)], rows=widths[gains.index(max(gains))])
