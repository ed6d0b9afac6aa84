"""The list alone, on the device it will be made on; with a model: tests/e2e/test_shortlist.py."""

import pytest
import torch

from kernels import shortlist

VOCABULARY, SIZE = 5000, 64


def table(lines, device, width=3000):
    context = torch.full((len(lines), width), -7, dtype=torch.int32)
    for row, line in zip(context, lines, strict=True):
        row[: len(line)] = torch.tensor(line, dtype=torch.int32)
    lengths = torch.tensor([len(line) for line in lines], dtype=torch.int32)
    return context.to(device), torch.arange(len(lines), device=device), lengths.to(device)


@pytest.fixture
def short(device):
    return shortlist.Shortlist(VOCABULARY, SIZE, device)


def test_tokens_that_were_seen_come_before_the_most_common_ones(short, device):
    assert short.follow(*table([[4000, 4001], [4001, 3]], device))
    wanted = {4000, 4001, *range(SIZE - 2)}
    assert set(short.ids.tolist()) == wanted


def test_only_the_recent_part_of_a_long_request_is_looked_at(short, device):
    line = [4999] + [4000] * shortlist.WINDOW
    short.follow(*table([line], device))
    assert 4000 in short.ids
    assert 4999 not in short.ids


def test_what_lies_outside_of_the_vocabulary_or_the_request_is_no_token(short, device):
    short.follow(*table([[VOCABULARY + 9, -1, 4000]], device))
    assert set(short.ids.tolist()) == {4000, *range(SIZE - 1)}
    assert float(short.seen.sum()) == 1.0


def test_what_is_no_longer_seen_makes_room(short, device):
    """Fewer looks at the new tokens than there were at the old ones suffice, since those fade."""
    old, new = [list(range(first, first + SIZE)) for first in (2000, 3000)]
    for line, looks in ((old, 20), (new, 18)):
        tokens = table([line], device)
        looked = [short.follow(*tokens) for _ in range(looks * shortlist.EVERY)]
        assert sum(looked) == looks
        assert set(short.ids.tolist()) == set(line)


def test_of_a_large_batch_all_requests_are_looked_at_in_turn(short, device):
    many = shortlist.MOST_REQUESTS + 40
    tokens = table([[1000 + number] for number in range(many)], device, width=4)
    for _ in range(shortlist.EVERY + 1):
        short.follow(*tokens)
    assert int((short.seen[1000 : 1000 + many] > 0).sum()) == many


def test_rows_and_tokens_belong_together_after_a_fault(short, device):
    """Found by review: tokens of a new list with the old one's rows would be drafted for good."""
    before = short.ids.tolist()

    class Gone:
        @property
        def weight(self):
            raise RuntimeError("the head's memory is gone")

    short._heads.append((None, "", Gone(), object()))
    with pytest.raises(RuntimeError):
        short.follow(*table([[4000, 4001]], device))
    assert short.ids.tolist() == before
