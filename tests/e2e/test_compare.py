"""The comparison itself can fail, and excuses nothing but a tie."""

from collections.abc import Sequence

import pytest

from tests.real.compare import TIE, Difference, TopTwo, first_differences, text_changes


def never(differences: Sequence[Difference]) -> list[TopTwo]:
    raise AssertionError(f"asked about {differences}")


def answering(*answers: TopTwo):
    def top_two(differences: Sequence[Difference]) -> list[TopTwo]:
        assert len(differences) == len(answers)
        return list(answers)

    return top_two


def test_equal_outputs_pass_without_asking_the_target():
    assert text_changes([[1, 2, 3], []], [[1, 2, 3], []], never) == []


def test_the_first_difference_of_each_pair_is_found():
    stock, patched = [[1, 2, 3, 4], [5], [6, 7]], [[1, 9, 3, 8], [5], [6, 7, 8]]
    assert first_differences(stock, patched) == [Difference(0, 1, 2, 9), Difference(2, 2, None, 8)]


def test_a_difference_with_a_clear_margin_fails():
    (line,) = text_changes([[1, 2]], [[1, 3]], answering({2: -0.1, 3: -0.1 - TIE}))
    assert "prompt=0" in line
    assert "position=1" in line
    assert "0.001000 apart" in line


def test_a_tie_of_the_two_chosen_tokens_passes():
    assert text_changes([[1, 2]], [[1, 3]], answering({3: -0.1, 2: -0.1 - TIE / 2})) == []


def test_a_token_outside_the_top_two_fails_however_close_they_are():
    assert len(text_changes([[1, 2]], [[1, 4]], answering({2: -0.1, 3: -0.1}))) == 1


@pytest.mark.parametrize("patched", [[1], [1, 2, 3]], ids=["a token lost", "a token too many"])
def test_another_length_fails(patched):
    assert len(text_changes([[1, 2]], [patched], answering({2: -0.1, 3: -0.1}))) == 1


def test_a_margin_that_is_not_a_number_fails():
    assert len(text_changes([[1, 2]], [[1, 3]], answering({2: float("nan"), 3: -0.1}))) == 1


def test_one_tie_does_not_excuse_the_next_pair():
    top_two = answering({2: -0.1, 3: -0.1}, {2: -0.1, 3: -0.5})
    assert len(text_changes([[2], [2]], [[3], [3]], top_two)) == 1


def test_outputs_that_are_not_pairs_are_refused():
    with pytest.raises(ValueError, match="1 stock outputs and 2 patched"):
        text_changes([[1]], [[1], [1]], never)
