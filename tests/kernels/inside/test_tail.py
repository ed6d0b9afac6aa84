import pytest
import torch

from kernels import counters, match, tail

WIDTH = 5


class Bench:
    """A batch of requests with contexts, drafts and everything `merge` is given; slots are not the rows."""

    def __init__(self, contexts, drafts, device, sampled=None, width=WIDTH):
        size = max(map(len, contexts)) + 4
        self.context = torch.full((len(contexts) + 2, size), 77, dtype=torch.int32)
        self.lengths = torch.full((len(contexts) + 2,), 5, dtype=torch.int32)
        self.slots = torch.randperm(len(contexts) + 2)[: len(contexts)]
        for slot, tokens in zip(self.slots.tolist(), contexts, strict=True):
            self.lengths[slot] = len(tokens)
            self.context[slot, : len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
        # Rows of a wider buffer, as the speculator's are.
        self.buffer = torch.full((len(contexts), width + 3), -9, dtype=torch.int64)
        self.buffer[:, :width] = torch.tensor(drafts)
        self.sampled = torch.tensor(sampled or [1] * len(contexts), dtype=torch.int32)
        self.best = torch.zeros(len(contexts), dtype=torch.int64)
        self.drafted = torch.zeros(len(contexts) + 2, 2, dtype=torch.int32)
        self.totals = torch.zeros(len(counters.DEVICE_FIELDS), dtype=torch.int64)
        self.longest, self.width = max(map(len, contexts)), width
        for name, value in vars(self).items():
            if torch.is_tensor(value):
                setattr(self, name, value.to(device))

    def merge(self, forwards):
        tail.merge(
            self.context, self.slots, self.lengths, self.buffer[:, : self.width], self.sampled, forwards,
            self.longest, self.best, self.drafted, self.totals,
        )  # fmt: skip
        assert not self.best.any()
        assert (self.buffer[:, self.width :] == -9).all()
        return self.buffer[:, : self.width].tolist()

    def counted(self):
        return dict(zip(counters.DEVICE_FIELDS, self.totals.tolist(), strict=True))


# After 1 2 3 came 40 41 42 43 44 45.
REPEAT = [9, 1, 2, 3, 40, 41, 42, 43, 44, 45, 8, 1, 2, 3]


@pytest.mark.parametrize(
    ("drafts", "forwards", "row"),
    [
        # Agrees at once: the continuation takes over from the first token.
        ([40, 5, 6, 7, 8], 1, [40, 41, 42, 43, 44]),
        ([40, 5, 6, 7, 8], 4, [40, 41, 42, 43, 44]),
        # Agrees at the third slot only.
        ([5, 6, 42, 7, 8], 3, [5, 6, 42, 43, 44]),
        # Agrees where the drafter has not been: no agreement, and what follows only fills.
        ([5, 6, 42, 7, 8], 2, [5, 6, 42, 43, 44]),
        # Agrees nowhere.
        ([5, 6, 7, 8, 9], 5, [5, 6, 7, 8, 9]),
        ([5, 6, 7, 8, 9], 1, [5, 41, 42, 43, 44]),
        # Nothing was drafted: whatever stands there is no draft.
        ([-1, -1, -1, -1, -1], 0, [40, 41, 42, 43, 44]),
    ],
)
def test_the_row_to_verify(drafts, forwards, row, device, route):
    assert Bench([REPEAT], [drafts], device).merge(forwards) == [row]


@pytest.mark.parametrize("forwards", [0, 1, 3, 5, 9])
def test_without_a_repeat_the_drafts_stay_and_token_ids_fill(forwards, device, route):
    (row,) = Bench([[1, 2, 3, 4, 5, 6]], [[11, 12, 13, 14, 15]], device).merge(forwards)
    assert row == [11, 12, 13, 14, 15][:forwards] + [tail.FILLER] * (WIDTH - forwards)


def test_a_short_continuation_leaves_the_drafts_behind_it(device, route):
    (row,) = Bench([[1, 2, 3, 40, 1, 2, 3]], [[40, 12, 13, 14, 15]], device).merge(5)
    assert row == [40, 1, 2, 3, 15]


def test_a_prefill_chunk_and_a_masked_row_are_left_alone_but_for_their_minus_ones(device, route):
    bench = Bench([REPEAT] * 3, [[40, 2, -1, -1, -1]] * 3, device, sampled=[0, 1, 1])
    bench.slots[1] = -1
    assert bench.merge(1) == [[40, 2, 0, 0, 0], [40, 2, 0, 0, 0], [40, 41, 42, 43, 44]]
    assert bench.counted()["proposals"] == 1


@pytest.mark.parametrize("forwards", [0, 1, 2, 5])
def test_kernel_equals_reference(forwards, device, route):
    contexts = [torch.randint(4, (size,)).tolist() for size in (1, 2, 3, 4, 8, 30, 60, 90)]
    drafts = torch.randint(4, (len(contexts), WIDTH)).tolist()
    bench = Bench(contexts, drafts, device)
    host = Bench(contexts, drafts, torch.device("cpu"))
    found, count = match.match_reference(host.context, host.slots, host.lengths, WIDTH)
    row, start, end = tail.merge_reference(torch.tensor(drafts), found, count, forwards)
    assert bench.merge(forwards) == row.tolist()
    held = bench.drafted[bench.slots].tolist()
    assert held == torch.stack([start, end], dim=1).tolist()


def test_what_was_accepted_is_told_apart(device, route):
    """Two drafts, then a tail of three; of these 0, 1, 2, 4 and 5 were accepted. A row drafted so gives one filler."""
    bench = Bench([REPEAT] * 5, [[5, 6, 42, 7, 8]] * 5, device)
    bench.merge(3)
    assert bench.counted() | {"drafts": 10, "tails": 5, "tail_tokens": 15} == bench.counted()
    bench.totals.zero_()
    bench.sampled = torch.tensor([1, 2, 3, 5, 6], dtype=torch.int32, device=bench.sampled.device)
    bench.merge(0)
    counted = bench.counted()
    assert (counted["accepted_drafts"], counted["accepted_tail_tokens"], counted["accepted_fillers"]) == (7, 5, 0)


def test_a_filler_that_was_accepted_is_no_draft(device, route):
    bench = Bench([REPEAT], [[5, 6, 7, 8, 9]], device)
    bench.merge(1)
    bench.totals.zero_()
    bench.sampled[0] = 3
    bench.merge(1)
    counted = bench.counted()
    assert (counted["accepted_drafts"], counted["accepted_tail_tokens"], counted["accepted_fillers"]) == (1, 0, 1)
