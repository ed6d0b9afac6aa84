import numpy as np
import pytest
import torch

from kernels import context, counters

K = 4


class Batch:
    """What a runner's host side knows: true token lists by request, and the order of the batch."""

    def __init__(self, longest=200, places=6):
        self.truth = {}
        self.order = []
        self.tokens = np.full((places, longest), -7, np.int32)
        self.counts = np.zeros(places, np.int64)

    def lay(self):
        self.tokens[:] = -7
        for place, name in enumerate(self.order):
            row = self.truth[name]
            self.tokens[place, : len(row)] = row
            self.counts[place] = len(row)


def check(ctx, batch):
    for slot, name in zip(ctx.slots.tolist(), batch.order, strict=True):
        truth = batch.truth[name]
        assert int(ctx.lengths[slot]) == len(truth), name
        places = [place % ctx.window for place in range(max(0, len(truth) - ctx.window), len(truth))]
        assert ctx.tokens[slot].cpu()[places].tolist() == truth[-ctx.window :], name


def step(ctx, batch, totals, *, stale, last):
    """One step: the device learns of accepted tokens before the host does (stale), or with it."""
    batch.lay()
    host = None if not stale else [name for name in batch.order if name not in last]
    tokens, counts = batch.tokens.copy(), batch.counts.copy()
    if stale:  # under async scheduling the host's copy of those that go on is worth nothing
        for place, name in enumerate(batch.order):
            if name in last:
                tokens[place], counts[place] = -1, 3
    ctx.follow(batch.order, tokens, counts, host)
    sampled = torch.full((len(batch.order), K + 1), -1, dtype=torch.int32)
    accepted = torch.zeros(len(batch.order), dtype=torch.int32)
    for place, name in enumerate(batch.order):
        new = torch.randint(1000, (int(torch.randint(K + 2, ())),)).tolist()
        sampled[place, : len(new)] = torch.tensor(new, dtype=torch.int32)
        accepted[place] = len(new)
        batch.truth[name] = batch.truth[name] + new
    ctx.append(sampled.to(ctx.device), accepted.to(ctx.device), totals)
    assert ctx.longest >= max(len(batch.truth[name]) for name in batch.order)


@pytest.mark.parametrize("stale", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("limit", [2**20, 4 * 6 * 32], ids=["whole", "window"])
@pytest.mark.parametrize("seed", range(4))
def test_the_copy_follows_requests_that_come_move_and_go(stale, limit, seed, device, route):
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    ctx = context.Context(6, 200, device, limit)
    ctx.tokens.fill_(-99)  # nobody may read what was not written
    batch, last, born = Batch(), set(), 0
    totals = torch.zeros(len(counters.DEVICE_FIELDS), dtype=torch.int64, device=device)
    for _ in range(14):
        batch.order = [name for name in batch.order if rng.random() > 0.25]
        gone = [name for name in batch.truth if name not in batch.order]
        while len(batch.order) < 6 and rng.random() < 0.6:
            if gone and rng.random() < 0.4:  # a preempted request comes back
                batch.order.append(gone.pop())
            else:
                born += 1
                batch.truth[f"r{born}"] = rng.integers(0, 1000, rng.integers(1, 60)).tolist()
                batch.order.append(f"r{born}")
        rng.shuffle(batch.order)
        if batch.order:
            step(ctx, batch, totals, stale=stale, last=last)
            check(ctx, batch)
        last = set(batch.order)


def test_rows_are_given_back(device):
    ctx = context.Context(2, 50, device)
    totals = torch.zeros(len(counters.DEVICE_FIELDS), dtype=torch.int64, device=device)
    batch = Batch()
    for number in range(20):
        batch.truth[f"r{number}"] = [number] * 5
        batch.order = [f"r{number}"]
        step(ctx, batch, totals, stale=False, last=set())
        check(ctx, batch)


def test_the_copy_never_takes_more_than_its_limit():
    ctx = context.Context(256, 1_048_576, torch.device("meta"))
    assert ctx.tokens.nbytes <= context.LIMIT


def test_what_was_accepted_is_counted_by_its_source(device, route):
    ctx = context.Context(4, 50, device)
    totals = torch.zeros(len(counters.DEVICE_FIELDS), dtype=torch.int64, device=device)
    batch = Batch()
    batch.truth, batch.order = {"a": [1], "b": [1], "c": [1], "d": [1]}, ["a", "b", "c", "d"]
    batch.lay()
    ctx.follow(batch.order, batch.tokens, batch.counts, None)
    for slot, (mine, drafts) in zip(ctx.slots.tolist(), [(2, 4), (2, 4), (1, 1), (0, 0)], strict=True):
        ctx.drafted[slot] = torch.tensor([mine, drafts], dtype=torch.int32)
    sampled = torch.ones(4, 5, dtype=torch.int32, device=device)
    ctx.append(sampled, torch.tensor([2, 4, 3, 1], dtype=torch.int32, device=device), totals)
    # a: 1 of the drafter. b: 2 of the drafter, 1 copied. c: 1 of the drafter, 1 filler. d: nothing was proposed.
    assert totals.tolist()[counters.ACCEPTED_DRAFTS :] == [1 + 2 + 1, 1, 1]
    assert not ctx.drafted[ctx.slots.long()].any()
