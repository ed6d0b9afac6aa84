import pytest
import torch

from kernels import match


def brute(tokens, width):
    """The definition, by hand: try every suffix length from the longest on, and every end from the latest back."""
    size = len(tokens)
    for length in range(min(match.MAX_MATCH, size - 1), match.MIN_MATCH - 1, -1):
        for end in range(size - 1, length - 1, -1):
            if tokens[end - length : end] == tokens[size - length :]:
                return tokens[end : end + width]
    return []


def run(rows, width, device, window=None, garbage=77):
    window = window or max(len(row) for row in rows) + 3
    context = torch.full((len(rows) + 2, window), garbage, dtype=torch.int32)
    lengths = torch.full((len(rows) + 2,), garbage, dtype=torch.int32)
    slots = torch.randperm(len(rows) + 2)[: len(rows)].int()
    for slot, row in zip(slots.tolist(), rows, strict=True):
        lengths[slot] = len(row)
        for place, token in list(enumerate(row))[-window:]:
            context[slot, place % window] = token
    best = torch.zeros(len(rows), dtype=torch.int64, device=device)
    before = context.clone()
    context, lengths, slots = (tensor.to(device) for tensor in (context, lengths, slots))
    found, count = match.match(context, slots, lengths, width, max(map(len, rows)), best)
    assert torch.equal(context.cpu(), before)
    assert not best.any()
    return [row[:size] for row, size in zip(found.tolist(), count.tolist(), strict=True)]


@pytest.mark.parametrize("alphabet", [2, 3, 20])
@pytest.mark.parametrize("width", [1, 2, 5, 8])
def test_equals_the_definition(alphabet, width, device, route):
    sizes = [0, 1, 2, 3, 4, 5, 9, 40, 77]
    rows = [torch.randint(alphabet, (size,)).tolist() for size in sizes]
    assert run(rows, width, device) == [brute(row, width) for row in rows]


def test_a_planted_repeat_is_continued_at_the_right_token(device, route):
    phrase = list(range(100, 120))
    row = [1, 2, 3, *phrase, 7, 8, 9, 10, *phrase[:9]]
    assert run([row], 4, device) == [phrase[9:13]]


def test_the_longest_suffix_wins_over_the_latest(device, route):
    row = [5, 1, 2, 3, 40, 41, 6, 1, 2, 3, 50, 51, 5, 1, 2, 3]
    assert run([row], 2, device) == [[40, 41]]


def test_the_latest_wins_a_tie(device, route):
    row = [1, 2, 3, 40, 1, 2, 3, 50, 1, 2, 3]
    assert run([row], 1, device) == [[50]]


def test_a_continuation_stops_where_the_context_does(device, route):
    assert run([[1, 2, 3, 9, 1, 2, 3]], 8, device) == [[9, 1, 2, 3]]


def test_two_tokens_are_no_match(device, route):
    assert run([[1, 2, 9, 1, 2]], 4, device) == [[]]


def test_a_match_across_a_block_edge(device):
    phrase = [501, 502, 503, 504, 505, 506]
    row = [*range(1000, 1000 + match.BLOCK), *phrase, *range(5000, 5200), *phrase[:4]]
    assert run([row], 2, device) == [phrase[4:]]


def test_a_constant_context_is_cut_at_the_longest_match(device, route):
    assert run([[3] * 150], 4, device) == [[3]]


@pytest.mark.parametrize("window", [16, 17, 64])
def test_only_the_window_counts(window, device, route):
    rows = [torch.randint(3, (size,)).tolist() for size in (5, window - 1, window, window + 1, 3 * window + 2)]
    assert run(rows, 3, device, window=window) == [brute(row[-window:], 3) for row in rows]
