"""What a request's past says about its next drafts: kept per request on the scheduler's side, no tensor in sight.

Two things predict acceptance: how often the drafter was right lately, and whether the
text is repeating itself at the moment. Both are known two steps late under async
scheduling, which is early enough.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import mul
from typing import NamedTuple

from .depth import Outlook, Slots

MIN_MATCH = 3
# Tokens of a prompt that are indexed, at half a microsecond each on the scheduler: of longer ones the recent part.
INDEXED = 2048
# Slots of a row, at most; vLLM knows no K beyond.
MOST = 256
# Runs of a match, in tokens, that are told apart; the last holds all longer ones.
RUNS = (0, 3, 4, 6, 9, 14, 24)


def run_class(run: int) -> int:
    """Return the index in RUNS of the largest entry not above `run` (tokens)."""
    return bisect.bisect_right(RUNS, run) - 1


class Repetition:
    """Follows a request's context and says where it stood before.

    place: where in the context the continuation starts, 0 for none. run: tokens that the
    context and that earlier place have in common, at least. It stays at one place while
    that goes on being right, else moves to the last place with the same MIN_MATCH tokens.
    """

    def __init__(self) -> None:
        self.place = 0
        self.run = 0
        self._seen = 0
        self._ends: dict[tuple[int, ...], int] = {}

    def advance(self, context: Sequence[int]) -> None:
        """Take in what the context has gained since the last call; a context that shrank starts anew."""
        size = len(context)
        if size == self._seen:
            return
        if size < self._seen:
            self.__init__()  # type: ignore[misc]
        start = max(self._seen, size - INDEXED)
        # From here on, so that the first new token has its MIN_MATCH tokens.
        first = max(start - MIN_MATCH + 1, 0)
        recent, ends, place, run = tuple(context[first:size]), self._ends, self.place, self.run
        for index in range(start - first, size - first):
            if place and context[place] == recent[index]:
                place += 1
                run += 1
            else:
                place = run = 0
            if index + 1 < MIN_MATCH:
                continue
            last = recent[index + 1 - MIN_MATCH : index + 1]
            if not place:
                place = ends.get(last, 0)
                run = MIN_MATCH if place else 0
            ends[last] = first + index + 1
        self.place, self.run, self._seen = place, run, size

    @property
    def run_class(self) -> int:
        """The class of the run at hand."""
        return run_class(self.run)

    def continuation(self, context: Sequence[int], width: int) -> list[int]:
        """Return the up to `width` tokens that followed the earlier place."""
        return list(context[self.place : min(self.place + width, self._seen)]) if self.place else []


class Rate:
    """An exponential average of yes and no, started at `value` (a probability)."""

    __slots__ = ("value",)

    def __init__(self, value: float) -> None:
        self.value = value

    def add(self, yes: bool, weight: float) -> None:
        """Take in one observation with a weight in (0, 1]."""
        self.value += weight * (yes - self.value)


@dataclass
class History:
    """One request. first, later: see depth.Outlook, None before any evidence; step: of the last evidence."""

    first: float | None = None
    later: float | None = None
    step: int = 0
    repetition: Repetition = field(default_factory=Repetition)


class Fared:
    """How expectations fared, by slot: accepted tokens over expected ones, near 1 while there are few."""

    # Tokens that count for 1, and what is left of the old ones after a step.
    PRIOR, KEPT = 8.0, 0.995

    def __init__(self) -> None:
        self._expected = [self.PRIOR] * MOST
        self._accepted = [self.PRIOR] * MOST

    def add(self, slot: int, expected: float, accepted: int) -> None:
        """Take in one step's expected and accepted tokens at a slot."""
        for sums, value in ((self._expected, expected), (self._accepted, accepted)):
            sums[slot] = self.PRIOR + self.KEPT * (sums[slot] - self.PRIOR) + value

    def ratios(self, width: int) -> list[float]:
        """Return accepted over expected at the first `width` slots, [width]."""
        return [took / hoped for took, hoped in zip(self._accepted[:width], self._expected[:width], strict=True)]


class Verified(NamedTuple):
    """A request's rows in one step.

    rows: drafts verified. forwards: of them, how many may be the drafter's own. run: the
    class of the repetition's run when the step was planned.
    """

    rows: int
    forwards: int
    run: int


class Common(NamedTuple):
    """What is believed of a request that nothing is known of; first, later: see depth.Outlook."""

    first: float
    later: float


class Beliefs:
    """What was seen over all requests, and what is therefore expected of each.

    A request's own evidence counts most and fades in favour of everybody's when it gets
    old, and everybody's fades in favour of hope: whoever stopped drafting tries again.
    """

    # Expected before anything is seen, and again when nothing is seen for long.
    HOPE_FIRST, HOPE_LATER = 0.6, 0.6
    # Weights of one observation: in a request's averages, and in everybody's.
    OWN, ALL = 0.1, 0.02
    # Left of a belief's weight after a step without evidence: a request's, and everybody's.
    FADE_OWN, FADE_ALL = 0.99, 0.999

    def __init__(self) -> None:
        self.step = 0
        self._first = Rate(self.HOPE_FIRST)
        self._later = Rate(self.HOPE_LATER)
        self._seen = 0
        # By the run known when the step was planned: 0 is a text that was not repeating itself then, and may since.
        self._fared = Fared(), Fared()
        self._copied = [Rate(0.1 if run == 0 else 0.5) for run in RUNS]
        self._held = [Rate(0.6 + 0.04 * index) for index in range(len(RUNS))]

    def learn(
        self,
        history: History,
        context: Sequence[int],
        generated: Sequence[int],
        verified: Verified,
    ) -> None:
        """Take in one verification.

        context: the tokens before it, which history.repetition has seen. generated: the
        accepted drafts and the one token after them.
        """
        right = len(generated) - 1
        checked = min(verified.rows, verified.forwards)
        if checked < 1:
            return
        self._seen = self.step
        history.first = self._own(history, history.first, self._first, right >= 1)
        self._first.add(right >= 1, self.ALL)
        if right < 1:
            return
        guess = history.repetition.continuation(context, len(generated))
        self._copied[verified.run].add(bool(guess) and guess[0] == generated[0], self.ALL)
        if guess and guess[0] == generated[0]:
            for copied, true in zip(guess[1:], generated[1:], strict=False):
                self._held[verified.run].add(copied == true, self.ALL)
                if copied != true:
                    break
            return
        for slot in range(1, checked):
            history.later = self._own(history, history.later, self._later, slot < right)
            self._later.add(slot < right, self.ALL)
            if slot >= right:
                break

    def _own(self, history: History, own: float | None, common: Rate, yes: bool) -> float:
        """Return what is believed of a request after one more observation; everybody's are of this step."""
        believed = self._faded(own, common.value, history.step)
        history.step = self.step
        return believed + self.OWN * (yes - believed)

    def _common(self) -> Common:
        """Return what is believed of everybody."""
        kept = self.FADE_ALL ** max(self.step - self._seen, 0)
        return Common(
            self.HOPE_FIRST + (self._first.value - self.HOPE_FIRST) * kept,
            self.HOPE_LATER + (self._later.value - self.HOPE_LATER) * kept,
        )

    def _faded(self, own: float | None, common: float, step: int) -> float:
        """Return what is believed of a request whose own evidence is of `step`."""
        return common if own is None else common + (own - common) * self.FADE_OWN ** max(self.step - step, 0)

    def slots(self, histories: Sequence[History], width: int) -> Slots:
        """Return what is expected at each slot of these requests' rows, corrected by how such expectations fared."""
        found = Slots.of(self.outlooks(histories), width)
        drafted, copied = (fared.ratios(width) for fared in self._fared)
        return Slots(found.batch, [*map(mul, found.drafted, drafted)], [*map(mul, found.copied, copied)])

    def __str__(self) -> str:
        """Return what is believed of everybody, for the log."""
        rates = {"first": self._first, "later": self._later, "copied": self._copied[-1], "held": self._held[-1]}
        return "accepted: " + " ".join(f"{name} {rate.value:.2f}" for name, rate in rates.items())

    def judge(self, expected: Sequence[float], forwards: int, right: Sequence[int]) -> None:
        """Compare what was expected at each slot of a step (Slots.at) with what came.

        expected: [rows]. forwards: of them, slots that the drafter had reached. right: each
        request's accepted drafts.
        """
        for slot, hoped in enumerate(expected):
            self._fared[slot >= forwards].add(slot, hoped, sum(count > slot for count in right))

    def outlooks(self, histories: Sequence[History]) -> list[Outlook]:
        """Say what is expected of each of these requests."""
        common, found = self._common(), []
        for history in histories:
            run = history.repetition.run_class
            found.append(
                Outlook(
                    self._faded(history.first, common.first, history.step),
                    self._faded(history.later, common.later, history.step),
                    self._copied[run].value,
                    self._held[run].value,
                )
            )
        return found
