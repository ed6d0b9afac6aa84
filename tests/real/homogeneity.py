"""Whether two sets of sampled continuations can come from one distribution: a chi-square test without scipy."""

import math
from collections import Counter
from collections.abc import Sequence

Continuation = tuple[int, ...]

# A class is told apart only if both samples together hold this many: the test is an approximation for large counts.
LEAST = 20


def classes(continuations: Sequence[Continuation], least: int = LEAST) -> list[Continuation]:
    """Return the class of each continuation: its longest beginning that ``least`` of them share.

    Continuations whose class would hold fewer than that, all longer ones taken out, count as one class, ().
    """
    shared = Counter(kept[:size] for kept in continuations for size in range(len(kept) + 1))
    longest = [
        next(kept[:size] for size in range(len(kept), -1, -1) if size == 0 or shared[kept[:size]] >= least)
        for kept in continuations
    ]
    sizes = Counter(longest)
    return [kept if sizes[kept] >= least else () for kept in longest]


def statistic(left: Sequence[Continuation], right: Sequence[Continuation]) -> tuple[float, int]:
    """Return the chi-square statistic of two samples being one distribution, and its degrees of freedom."""
    both = classes([*left, *right])
    seen = Counter(both[: len(left)]), Counter(both[len(left) :])
    total, squares = Counter(both), 0.0
    for counts, size in zip(seen, (len(left), len(right)), strict=True):
        for name, count in total.items():
            expected = count * size / len(both)
            squares += (counts[name] - expected) ** 2 / expected
    return squares, len(total) - 1


def deviation(squares: float, freedom: int) -> float:
    """Return how many standard deviations a chi-square value lies above its mean (Wilson and Hilferty, 1931)."""
    spread = 2 / (9 * freedom)
    return float((math.cbrt(squares / freedom) - (1 - spread)) / math.sqrt(spread))
