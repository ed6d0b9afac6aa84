"""The chi-square test itself: what it calls equal, and what it does not."""

import random

import pytest

from tests.real import homogeneity


def drawn(dice: random.Random, weights: tuple[float, ...], size: int) -> list[tuple[int, ...]]:
    return [tuple(dice.choices(range(len(weights)), weights, k=3)) for _ in range(size)]


# Quantiles of the chi-square distribution, from its tables: the value, the degrees of freedom, and the normal quantile.
@pytest.mark.parametrize(
    ("value", "freedom", "normal"),
    [(9.236, 5, 1.2816), (20.515, 5, 3.0902), (18.307, 10, 1.6449), (59.703, 30, 3.0902), (149.449, 100, 3.0902)],
)
def test_the_deviation_is_that_of_the_tables(value, freedom, normal):
    assert homogeneity.deviation(value, freedom) == pytest.approx(normal, abs=0.03)


def test_one_distribution_passes_as_often_as_it_should():
    dice = random.Random(1)
    found = [
        homogeneity.deviation(*homogeneity.statistic(*(drawn(dice, (5, 3, 1, 1), 400) for _ in range(2))))
        for _ in range(300)
    ]
    assert abs(sum(found) / len(found)) < 0.2
    assert sum(value > 1.645 for value in found) < 30
    assert max(found) < 4


def test_another_distribution_fails():
    dice = random.Random(1)
    one, other = drawn(dice, (5, 3, 1, 1), 2000), drawn(dice, (6, 2, 1, 1), 2000)
    assert homogeneity.deviation(*homogeneity.statistic(one, other)) > 5


def test_rare_continuations_are_told_apart_by_how_they_begin():
    often, rare, odd = (1, 1), [(1, 10 + n) for n in range(20)], [(2, 1)]
    assert homogeneity.classes([often] * 20 + rare + odd) == [often] * 20 + [(1,)] * 20 + [()]


def test_a_class_that_its_longer_ones_leave_nearly_empty_is_none():
    assert homogeneity.classes([(1, 1)] * 20 + [(1, 2)]) == [(1, 1)] * 20 + [()]
