"""Replay recorded traces under the depth policy and stock's fixed depths: ``python -m tests.bench.simulate``.

Closed loop: c requests in flight. The policy sees results two steps old, as under async
scheduling, and is told what each step cost; the costs are an H200's (RESULTS.md).
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from radiance_patch.kernels.cost import Costs
from radiance_patch.kernels.depth import Choice
from radiance_patch.kernels.history import MIN_MATCH, History, Verified
from radiance_patch.kernels.steps import SAMPLE, Planner

from tests.bench import record

# Seconds on an H200, widened model, by batch size: a step, one row of one request, a draft forward.
H200 = {
    1: Costs(5.56e-3, 0.03e-3, 0.62e-3),
    8: Costs(5.95e-3, 0.010e-3, 0.50e-3),
    32: Costs(6.60e-3, 0.008e-3, 0.90e-3),
}
# What speculation costs a step before any draft is made; stock without it does not pay.
SPECULATION = 0.46e-3
WIDTHS = (0, 1, 2, 3, 4, 6, 8)
LAG = 2


@dataclass
class Text:
    """One recorded request: its tokens, the drafts after each output token, and the verbatim continuations."""

    prompt: list[int]
    output: list[int]
    drafts: list[list[int]]
    copies: list[list[int]] = field(default_factory=list)

    @classmethod
    def of(cls, trace: dict[str, Any]) -> Text:
        """Return a trace with its continuations looked up."""
        text = cls(trace["prompt"], trace["output"], trace["drafts"])
        tokens = text.prompt + text.output
        text.copies = [longest_match(tokens[: len(text.prompt) + n + 1]) for n in range(len(text.output))]
        return text


def longest_match(tokens: Sequence[int], width: int = record.DEPTH) -> list[int]:
    """Return what followed the longest earlier occurrence of the end of `tokens`, the most recent on a tie."""
    size, best, place = len(tokens), MIN_MATCH - 1, 0
    for end in range(size - 1, MIN_MATCH - 1, -1):
        length = 0
        while length < end and tokens[end - 1 - length] == tokens[size - 1 - length]:
            length += 1
        if length > best:
            best, place = length, end
    return list(tokens[place : place + width]) if place else []


def merged(drafts: Sequence[int], copy: Sequence[int], forwards: int, width: int) -> list[int]:
    """Return the row to verify: the drafter's tokens, then the continuation from where it agrees."""
    row = list(drafts[:forwards])
    for slot in range(min(forwards, len(copy))):
        if copy[slot] == drafts[slot]:
            return (row[:slot] + list(copy[slot:]))[:width]
    return row


@dataclass
class Running:
    """A request in flight: where it is in its text, and what was drafted."""

    text: Text
    at: int = 0
    history: History = field(default_factory=History)
    # Tokens the policy has been told of.
    told: int = 1
    row: list[int] = field(default_factory=list)
    # The class of the repetition's run when the step was planned.
    run: int = 0

    def known(self) -> list[int]:
        """Return the context as far as it was told."""
        return self.text.prompt + self.text.output[: self.told]


Policy = Callable[[list[Running], int], Choice]


def fixed(k: int) -> Policy:
    """Return stock's policy of always drafting and verifying k."""
    return lambda _running, _drafted: Choice(k, k)


class Adaptive:
    """The product's policy."""

    def __init__(self, ceiling: int = record.DEPTH, tails: bool = True) -> None:
        self.planner = Planner(ceiling, lambda _batch: [width for width in WIDTHS if width <= ceiling])
        self.tails = tails
        # Whether the text was looked at for the last choice, which is then learnt from.
        self.looked = True

    def __call__(self, running: list[Running], drafted: int) -> Choice:
        """Choose for the next step."""
        self.planner.beliefs.step += 1
        self.planner.drafted = drafted
        standing = self.planner.standing(len(running))
        self.looked = standing is None
        if standing is not None:
            return standing
        for request in running:
            request.run = request.history.repetition.run_class
        return self.planner.choose([request.history for request in running[:SAMPLE]], len(running))


@dataclass
class Outcome:
    """What a replay gave."""

    tokens: int = 0
    seconds: float = 0.0
    forwards: int = 0
    rows: int = 0
    steps: int = 0

    @property
    def rate(self) -> float:
        """Return tokens a second."""
        return self.tokens / self.seconds


def replay(
    texts: Sequence[Text], policy: Policy, c: int, costs: Costs, clock: Callable[[int, float], float] | None = None
) -> Outcome:
    """Run all texts with c in flight; the last batch, which thins out, is not counted.

    clock: what the policy is told of a step's seconds, given its number; the truth if None.
    """
    adaptive = policy if isinstance(policy, Adaptive) else None
    waiting = deque(texts)
    running = [Running(waiting.popleft()) for _ in range(min(c, len(waiting)))]
    late: deque[list[Callable[[], None]]] = deque()
    outcome, drafted = Outcome(), 0
    while True:
        choice = policy(running, drafted)
        seconds = costs.of(len(running), choice.rows, choice.forwards)
        news: list[Callable[[], None]] = []
        before = outcome.tokens
        right: list[int] = []
        for request in running:
            outcome.tokens += _verify(request, choice.rows, drafted, adaptive, news)
            right.append(outcome.tokens - before - len(right) - sum(right) - 1)
            copy = request.text.copies[request.at] if adaptive is None or adaptive.tails else []
            drafts = request.text.drafts[request.at]
            tails = adaptive is not None and adaptive.tails
            request.row = merged(drafts, copy if tails else [], choice.forwards, record.DEPTH)
        if adaptive:
            if adaptive.looked:
                news.append(partial(adaptive.planner.beliefs.judge, adaptive.planner.expected, drafted, right[:SAMPLE]))
            told = seconds if clock is None else clock(outcome.steps, seconds)
            news.append(partial(adaptive.planner.costs.observe, len(running), choice.rows, choice.forwards, told))
        outcome.seconds += seconds
        outcome.forwards += choice.forwards
        outcome.rows += choice.rows
        outcome.steps += 1
        drafted = choice.forwards
        late.append(news)
        if len(late) >= LAG:
            for tell in late.popleft():
                tell()
        for index, request in enumerate(running):
            if request.at >= len(request.text.output) - 2:
                if not waiting:
                    return outcome
                running[index] = Running(waiting.popleft())


def _verify(
    request: Running, rows: int, drafted: int, adaptive: Adaptive | None, news: list[Callable[[], None]]
) -> int:
    """Verify a request's row and move on; returns the tokens gained."""
    truth = request.text.output[request.at + 1 :]
    right = 0
    for draft, true in zip(request.row[:rows], truth[:-1], strict=False):
        if draft != true:
            break
        right += 1
    generated = truth[: right + 1]
    request.at += len(generated)
    run = request.run
    if adaptive:
        looked = adaptive.looked

        def tell() -> None:
            request.history.repetition.advance(request.known())
            if looked:
                verified = Verified(rows, drafted, run)
                adaptive.planner.beliefs.learn(request.history, request.known(), generated, verified)
            request.told += len(generated)
            request.history.repetition.advance(request.known())

        news.append(tell)
    return len(generated)


def main() -> None:
    """Print tokens/s of the fixed depths and of the policy, as multiples of the best fixed depth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--c", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--t", type=float, nargs="+", default=list(record.TEMPERATURES))
    options = parser.parse_args()
    for temperature in options.t:
        texts = [Text.of(trace) for trace in record.load(temperature)]
        for c in options.c:
            loop = texts * (2 if c == 1 else 6)
            stock = {k: replay(loop, fixed(k), c, H200[c]).rate for k in (1, 2, 3, 4, 6, 8)}
            bare = Costs(H200[c].step - SPECULATION, 0.0, 0.0)
            stock[0] = replay(loop, fixed(0), c, bare).rate
            best = max(stock.values())
            print(f"T={temperature:g} c={c}: ", " ".join(f"K={k}: {v / best:.3f}" for k, v in sorted(stock.items())))
            for name, policy in {"depth": Adaptive(tails=False), "depth and tails": Adaptive()}.items():
                got = replay(loop, policy, c, H200[c])
                print(
                    f"    {name}: {got.rate / best:.3f}, forwards {got.forwards / got.steps:.2f},"
                    f" rows {got.rows / got.steps:.2f}, tokens a step and request {got.tokens / got.steps / c:.2f}"
                )


if __name__ == "__main__":
    main()
