import pytest
import torch

from kernels import counters, decide, top1

TAU = 0.28


def start(batch, width, device):
    going = torch.ones(batch, dtype=torch.int32, device=device)
    return decide.Drafts.start(going, width, top1.Scratch(torch.device(device)))


def play(slots, cont=(), width=8, forwards=None, tau=TAU, device="cpu"):
    """Run one request through the rule, slots being (token, probability): its drafts, and the forwards run."""
    drafts = start(1, width, device)
    continuation = torch.zeros(1, width, dtype=torch.int32, device=device)
    continuation[0, : len(cont)] = torch.tensor(cont, dtype=torch.int32, device=device)
    length = torch.tensor([len(cont)], dtype=torch.int32, device=device)
    used = 0
    for slot in range(min(forwards or width, width)):
        token, probability = slots[slot]
        used += 1
        decide.decide(
            drafts, slot, torch.tensor([token], device=device), torch.tensor([probability], device=device),
            continuation, length, tau, forwards or width,
        )  # fmt: skip
        if not int(drafts.total[slot]):
            break
    token, count, _ = decide.assemble_reference(drafts, continuation, length, -9, forwards or width)
    return token[0, : int(count)].tolist(), used


def test_a_confident_drafter_drafts_to_the_end():
    assert play([(t, 0.99) for t in range(8)]) == (list(range(8)), 8)


def test_drafting_stops_when_the_product_falls_below_tau():
    assert play([(1, 0.6), (2, 0.6), (3, 0.6), (4, 0.6)]) == ([1, 2, 3], 3)


def test_no_forward_runs_only_to_learn_that_confidence_fell():
    assert play([(1, 0.1), (2, 0.9)]) == ([1], 1)


def test_one_more_forward_runs_while_the_continuation_may_agree():
    assert play([(1, 0.1), (2, 0.9)], cont=[9, 2, 3]) == ([1, 2, 3], 2)
    assert play([(1, 0.1), (7, 0.9)], cont=[9, 2, 3]) == ([1], 2)


def test_an_agreeing_continuation_is_taken_whole_without_further_forwards():
    assert play([(5, 0.9)], cont=[5, 6, 7]) == ([5, 6, 7], 1)


def test_the_tail_fills_the_width_past_the_cap():
    assert play([(1, 0.9), (5, 0.9)], cont=[0, 5, 6, 7, 8, 9, 10, 11], forwards=2) == ([1, 5, 6, 7, 8, 9, 10, 11], 2)


def test_the_cap_ends_drafting():
    assert play([(1, 0.9), (2, 0.9)], forwards=2) == ([1, 2], 2)


def test_tau_one_keeps_the_first_draft_alone():
    assert play([(1, 0.99), (2, 0.99)], tau=1.0) == ([1], 1)


def test_tau_zero_never_stops():
    assert play([(t, 1e-9) for t in range(8)], tau=0.0) == (list(range(8)), 8)


def test_not_a_number_stops():
    assert play([(1, float("nan")), (2, 0.9)]) == ([1], 1)


def random_case(width, device, batch=6, vocab=40):
    continuation = torch.randint(vocab, (batch, width), dtype=torch.int32, device=device)
    length = torch.randint(width + 1, (batch,), dtype=torch.int32, device=device)
    logits = torch.randn(width, batch, vocab, device=device) * 5
    for slot in range(width):
        agree = torch.rand(batch, device=device) < 0.2
        logits[slot][agree, continuation[agree, slot].long()] = 40.0
    return continuation, length, logits


@pytest.mark.parametrize("width", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", range(5))
def test_kernel_equals_rule(width, seed, device):
    torch.manual_seed(seed)
    continuation, length, logits = random_case(width, device)
    forwards = 1 + seed
    mine, theirs = (start(6, width, device) for _ in range(2))
    for slot in range(min(width, forwards)):
        token = decide.take_slot(mine, slot, logits[slot], continuation, length, TAU, forwards)
        probability = torch.softmax(logits[slot], -1).amax(-1)
        decide.decide(theirs, slot, token, probability, continuation, length, TAU, forwards)
        for name in ("token", "kept", "tail", "going", "total"):
            assert torch.equal(getattr(mine, name), getattr(theirs, name)), (name, slot)
    slots = torch.randperm(9, device=device)[:6].int()
    drafted = torch.full((9, 2), -5, dtype=torch.int32, device=device)
    totals = torch.zeros(len(counters.DEVICE_FIELDS), dtype=torch.int64, device=device)
    token, count = decide.assemble(mine, continuation, length, slots, drafted, totals, forwards, filler=-9)
    wanted, wanted_count, counts = decide.assemble_reference(theirs, continuation, length, -9, forwards)
    assert torch.equal(token, wanted)
    assert torch.equal(count, wanted_count)
    assert totals[:6].tolist() == counts.tolist()
    assert drafted[slots.long()].tolist() == [[int(k), int(c)] for k, c in zip(theirs.kept, count, strict=True)]
    assert (drafted == -5).all(dim=1).sum() == 3


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_proposed_that_nobody_proposed(seed, device):
    torch.manual_seed(seed)
    width = 1 + seed % 8
    continuation, length, logits = random_case(width, device)
    drafts = start(6, width, device)
    tokens = logits.argmax(-1).T
    probabilities = torch.softmax(logits, -1).amax(-1).T
    used = 0
    for slot in range(width):
        decide.take_slot(drafts, slot, logits[slot], continuation, length, TAU, width)
        used += 1
        if not int(drafts.total[slot]):
            break
    token, count, _ = decide.assemble_reference(drafts, continuation, length, -9, width)
    for b in range(6):
        kept, size = int(drafts.kept[b]), int(count[b])
        assert 1 <= size <= width
        assert kept <= used
        assert token[b, :kept].tolist() == tokens[b, :kept].tolist()
        assert token[b, kept:size].tolist() == continuation[b, kept:size].tolist()
        assert (token[b, size:] == -9).all()
        confident = (torch.cumprod(probabilities[b], 0) >= TAU).long().cumprod(0).sum()
        if not int(drafts.tail[b]):
            assert kept == min(width, int(confident) + 1)  # what the rule promises, no more and no less
