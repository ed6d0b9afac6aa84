import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from radiance_patch.kernels import width

ALPHAS = st.floats(0.01, 1.0)
COUNTS = st.integers(0, 64)
AVERAGES = st.none() | st.floats(0, 65)
CLOSE = 1e-9


@st.composite
def verifications(draw):
    """A number of accepted drafts and of proposed ones."""
    proposed = draw(st.integers(1, 64))
    return draw(st.integers(0, proposed)), proposed


@pytest.mark.parametrize(
    ("average", "accepted", "proposed", "expected"),
    [
        (None, 0, 4, 0.0),
        (None, 2, 4, 2.0),
        (None, 4, 4, 5.0),  # all of it: at least so many
        (2.0, 2, 4, 2.0),
        (2.0, 0, 4, 1.5),
        (2.0, 3, 4, 2.25),
        (2.0, 4, 4, 2.75),
        (6.0, 2, 2, 6.0),  # all of a list that a grammar cut short says nothing against 6
        (6.0, 1, 2, 4.75),
    ],
)
def test_average_after(average, accepted, proposed, expected):
    assert width.average_after(average, accepted, proposed, 0.25) == expected


@given(AVERAGES, verifications(), ALPHAS)
def test_average_lies_between_the_old_one_and_what_was_seen(average, seen, alpha):
    accepted, proposed = seen
    after = width.average_after(average, accepted, proposed, alpha)
    seen_as = accepted + 1 if accepted == proposed else accepted
    old = seen_as if average is None else average
    assert min(old, seen_as) - CLOSE <= after <= max(old, seen_as) + CLOSE


@given(AVERAGES, st.integers(1, 64), ALPHAS)
def test_full_acceptance_never_lowers_the_average(average, proposed, alpha):
    """Exactly: a rounding error below would add up over thousands of steps, one above would cost a row."""
    after = width.average_after(average, proposed, proposed, alpha)
    assert after >= (average or 0)
    if average is not None and average >= proposed + 1:
        assert after == average


@given(st.lists(verifications(), min_size=1), ALPHAS)
def test_average_is_bounded_by_what_was_seen(history, alpha):
    average = None
    for accepted, proposed in history:
        average = width.average_after(average, accepted, proposed, alpha)
    assert 0 <= average <= max(accepted for accepted, _ in history) + 1 + CLOSE


@given(st.integers(1, 32), st.floats(0, 8), st.floats(0.05, 1.0), st.integers(0, 4), st.integers(1, 4))
def test_average_climbs_out_of_its_own_cap(proposed, average, alpha, margin, floor):
    """A request that accepts whatever it is given is soon given everything."""
    for _ in range(math.ceil(20 / alpha) * proposed):
        kept = width.width(average, proposed, margin, floor)
        average = width.average_after(average, kept, kept, alpha)
    assert width.width(average, proposed, margin, floor) == proposed


@given(st.integers(1, 32), st.floats(0, 33), st.floats(0.05, 1.0))
def test_width_falls_to_the_floor_when_nothing_is_accepted(proposed, average, alpha):
    for _ in range(math.ceil(200 / alpha)):
        average = width.average_after(average, 0, width.width(average, proposed, 0, 1), alpha)
    assert width.width(average, proposed, 0, 1) == 1


@pytest.mark.parametrize(
    ("average", "proposed", "margin", "floor", "expected"),
    [
        (None, 8, 2, 2, 8),
        (0.0, 8, 2, 2, 2),
        (0.0, 8, 0, 3, 3),
        (0.1, 8, 2, 2, 3),
        (2.0, 8, 2, 2, 4),
        (2.01, 8, 2, 2, 5),
        (7.5, 8, 2, 2, 8),
        (0.0, 1, 2, 2, 1),
        (3.0, 0, 2, 2, 0),
    ],
)
def test_width(average, proposed, margin, floor, expected):
    assert width.width(average, proposed, margin, floor) == expected


@given(AVERAGES, COUNTS, COUNTS, st.integers(1, 64))
def test_width_keeps_its_limits(average, proposed, margin, floor):
    kept = width.width(average, proposed, margin, floor)
    assert min(proposed, floor) <= kept <= proposed
    if average is None:
        assert kept == proposed
    else:
        assert kept >= min(proposed, average + margin)


@given(st.floats(0, 64), st.floats(0, 64), COUNTS, COUNTS, st.integers(1, 64))
def test_width_grows_with_the_average(low, high, proposed, margin, floor):
    assume(low <= high)
    assert width.width(low, proposed, margin, floor) <= width.width(high, proposed, margin, floor)


@pytest.mark.parametrize(
    ("widths", "captured", "expected"),
    [([1, 3, 2], [4], 4), ([1, 3, 2], [8, 4, 3, 2], 3), ([5], [4], None), ([5], [], None), ([0], [4, 8], 4)],
)
def test_batch_width(widths, captured, expected):
    assert width.batch_width(widths, captured) == expected


@given(st.lists(COUNTS, min_size=1), st.lists(COUNTS))
def test_batch_width_covers_every_request_and_has_a_graph(widths, captured):
    chosen = width.batch_width(widths, captured)
    if chosen is None:
        assert all(size < max(widths) for size in captured)
    else:
        assert chosen in captured
        assert all(size < max(widths) or size >= chosen for size in captured)


@pytest.mark.parametrize(
    ("drafts", "invalid", "placeholders", "expected"),
    [
        ([5, 6, 7], 0, False, 3),
        ([5, 6, -1, -1], 2, False, 2),  # cut by the grammar and padded
        ([5, 6, -1, -1], 2, True, 2),
        ([0, 0, 0], 0, False, 0),  # the drafter was skipped
        ([0, 0, 0], 0, True, 0),
        ([0, 7, 0], 0, False, 3),  # token 0 among others is a draft
        ([-1, -1, -1], 0, False, 0),  # a fresh request, padded
        ([-1, -1, -1], 0, True, 3),  # the worker holds the drafts
        ([-1, -1, -1], 2, True, 1),
        ([-1, -1, -1], 3, True, 0),
        ([-1], 2, True, 0),
        ([], 0, False, 0),
        ([], 0, True, 0),
    ],
)
def test_proposed_drafts(drafts, invalid, placeholders, expected):
    assert width.proposed_drafts(drafts, invalid, placeholders=placeholders) == expected


@given(st.lists(st.integers(-1, 3)), st.integers(0, 8), st.booleans())
def test_proposed_drafts_is_a_count(drafts, invalid, placeholders):
    count = width.proposed_drafts(drafts, invalid, placeholders=placeholders)
    assert 0 <= count <= len(drafts)
    if not placeholders:
        assert -1 not in drafts[:count]
