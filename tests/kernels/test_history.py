import pytest
from hypothesis import given
from hypothesis import strategies as st
from radiance_patch.kernels import history
from radiance_patch.kernels.history import Beliefs, History, Repetition, Verified

PHRASE = list(range(100, 120))


def followed(tokens):
    repetition = Repetition()
    repetition.advance(tokens)
    return repetition


def test_a_planted_repeat_is_continued_at_the_right_token():
    tokens = [1, 2, 3, *PHRASE, 7, 8, *PHRASE[:9]]
    repetition = followed(tokens)
    assert repetition.continuation(tokens, 4) == PHRASE[9:13]
    assert repetition.run == 9


def test_a_continuation_stops_where_the_context_does():
    tokens = [1, 2, 3, 9, 1, 2, 3]
    assert followed(tokens).continuation(tokens, 8) == [9, 1, 2, 3]


@pytest.mark.parametrize("tokens", [[], [1], [1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 9, 1, 2]])
def test_nothing_is_continued_without_a_repeat(tokens):
    repetition = followed(tokens)
    assert (repetition.continuation(tokens, 8), repetition.run_class) == ([], 0)


def test_after_a_break_the_latest_place_is_taken():
    tokens = [1, 2, 3, 40, 1, 2, 3, 50, 1, 2, 3]
    assert followed(tokens).continuation(tokens, 1) == [50]


@given(st.lists(st.integers(0, 3), max_size=60), st.lists(st.integers(1, 9), max_size=20))
def test_tokens_may_come_in_any_portions(tokens, portions):
    whole, piecemeal, end = followed(tokens), Repetition(), 0
    for size in portions:
        end += size
        piecemeal.advance(tokens[:end])
    piecemeal.advance(tokens)
    assert (piecemeal.place, piecemeal.run) == (whole.place, whole.run)


@given(st.lists(st.integers(0, 2), max_size=80))
def test_what_is_said_to_be_a_repeat_is_one(tokens):
    repetition = followed(tokens)
    if repetition.place:
        run, place = repetition.run, repetition.place
        assert history.MIN_MATCH <= run <= place < len(tokens)
        assert tokens[place - run : place] == tokens[len(tokens) - run :]


def test_a_context_that_shrank_is_read_anew():
    repetition = followed([5, 6, 7, 8, 5, 6, 7])
    repetition.advance([1, 2, 3])
    assert repetition.run == 0


def test_a_long_prompt_is_indexed_from_its_recent_part(monkeypatch):
    monkeypatch.setattr(history, "INDEXED", 10)
    old, recent = [*PHRASE[:4], 50, 51, 52, 53], [60, 61, 62, 63, 64, 65, 66]
    assert followed([*old, *recent, *PHRASE[:4]]).run == 0
    assert followed([*old, *recent, 60, 61, 62]).run == 3


def learn(beliefs, seen, generated, *, rows=4, forwards=4, context=(1, 2, 3, 4), run=0):
    beliefs.step += 1
    seen.repetition.advance(context)
    beliefs.learn(seen, context, generated, Verified(rows, forwards, run))


@pytest.mark.parametrize(("generated", "higher"), [([9, 9, 9], True), ([9], False)])
def test_a_request_is_believed_by_its_own_evidence(generated, higher):
    beliefs, mine, other = Beliefs(), History(), History()
    for _ in range(20):
        learn(beliefs, mine, generated)
    seen = beliefs.outlooks([mine, other])
    assert (seen[0].first > seen[1].first) == higher
    assert (seen[1].first > Beliefs.HOPE_FIRST) == higher


def test_old_evidence_gives_way_to_hope():
    """Whoever stopped drafting tries again."""
    beliefs, mine = Beliefs(), History()
    for _ in range(50):
        learn(beliefs, mine, [9])
    low = beliefs.outlooks([mine])[0].first
    beliefs.step += 50
    between = beliefs.outlooks([mine])[0].first
    beliefs.step += 10000
    assert low < between < beliefs.outlooks([mine])[0].first
    assert beliefs.outlooks([mine])[0].first == pytest.approx(Beliefs.HOPE_FIRST, abs=0.01)


def test_rows_that_held_no_drafts_are_no_evidence():
    beliefs, mine = Beliefs(), History()
    learn(beliefs, mine, [9], rows=0)
    learn(beliefs, mine, [9], forwards=0)
    assert (mine.first, mine.later) == (None, None)


def test_a_tail_is_no_evidence_of_the_drafter():
    """Accepted tokens that the continuation foretold may have come from it: only the first is surely the drafter's."""
    context = (1, 2, 3, 4, 5, 6, 1, 2, 3)
    beliefs, mine = Beliefs(), History()
    learn(beliefs, mine, [4, 5, 6, 7], context=context, run=1)
    assert (mine.first is not None, mine.later) == (True, None)
    (seen,) = beliefs.outlooks([mine])
    (before,) = Beliefs().outlooks([mine])
    assert seen.copied > before.copied


def test_a_wrong_continuation_lowers_what_is_expected_of_one():
    context = (1, 2, 3, 4, 5, 6, 1, 2, 3)
    beliefs, mine = Beliefs(), History()
    learn(beliefs, mine, [77, 78, 79], context=context, run=1)
    assert beliefs.outlooks([mine])[0].copied < Beliefs().outlooks([mine])[0].copied
    assert mine.later is not None
