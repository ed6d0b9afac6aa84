import logging
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from kernels import decide, draft, guard, settings, top1
from kernels.ranks import Ranks
from tests.kernels.inside import gloo

VOCAB, BATCH, WIDTH = 130, 3, 5
# Each request's tokens; the second repeats itself, so that a continuation may agree.
PLAIN = [[1, 2, 3, 4], [5, 6], [7, 8, 9]]
ROWS = [[1, 2, 3, 4], [9, 1, 2, 3, 5, 6, 7, 8, 1, 2, 3], [7, 7, 8]]


class Lines(logging.Handler):
    """What was logged, by its first line."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def controller(tau, *, asynchronous):
    config = SimpleNamespace(
        scheduler_config=SimpleNamespace(async_scheduling=asynchronous, max_num_seqs=4),
        model_config=SimpleNamespace(max_model_len=64),
        num_speculative_tokens=WIDTH,
    )
    own = draft.Controller(torch.device("cpu"), config)
    own.settings = replace(settings.current(), tau=tau)
    return own


class Drafter:
    """A proposer as the hooks see one, whose model's hidden states are its logits."""

    def __init__(self, tau=0.28, *, asynchronous=False, alone=False):
        self.model = gloo.Model(torch.eye(VOCAB))
        self.asynchronous = asynchronous
        if not alone:
            setattr(self, draft.RANKS, Ranks(self.model, gloo.group(), torch.device("cpu")))
        if alone or getattr(self, draft.RANKS).leads:
            setattr(self, draft.NAME, controller(tau, asynchronous=asynchronous))

    def propose(self, slots, width=WIDTH, rows=ROWS):
        """Play vLLM's runner and its loop over logits [K, B, V]: forwards, tokens drafted, and drafts to verify."""
        batch = SimpleNamespace(
            req_ids=[f"r{i}" for i in range(BATCH)],
            token_ids_cpu=np.array([row + [-1] * (64 - len(row)) for row in rows], np.int32),
            num_tokens_no_spec=[len(row) for row in rows],
        )
        runner = SimpleNamespace(
            drafter=self, input_batch=batch, num_spec_tokens=width, use_async_scheduling=self.asynchronous
        )
        draft.prepare(runner, [row[-1:] for row in rows])
        draft.begin(self, width, BATCH)
        taken = []
        for slot in range(width):
            if slot and draft.stopped(self):
                break
            token = draft.sample(self, slots[slot])
            if token is None:  # vLLM picks
                token = self.model.compute_logits(slots[slot]).argmax(dim=-1)
            taken.append(token)
        tokens = torch.stack(taken, dim=1)
        drafts = draft.finish(runner, tokens.clone())
        return len(taken), tokens.tolist(), drafts.tolist() if torch.is_tensor(drafts) else drafts


def noisy(rank, slots):
    """Move every logit of all ranks but the first by its last bit."""
    up = torch.nextafter(slots, torch.full_like(slots, float("inf")))
    down = torch.nextafter(slots, torch.full_like(slots, float("-inf")))
    return torch.where(torch.arange(VOCAB) % 2 == 0, up, down) if rank else slots


def random_slots(seed):
    torch.manual_seed(seed)
    slots = torch.randn(WIDTH, BATCH, VOCAB) * 3
    slots[:, :, [seed % VOCAB, (seed * 7) % VOCAB]] += 9.0
    slots[seed % WIDTH, 1, 5] = 40.0  # the continuation's first token
    return slots


def boundary(slots):
    """Return a tau that the confidence after the first slot meets exactly: a last bit decides."""
    return float(top1.top1_reference(slots[0])[1][0])


def alone(slots, tau):
    """Return the forwards and tokens of a rank that decides by itself from whole logits, as one did before."""
    drafts = decide.Drafts.start(torch.ones(BATCH, dtype=torch.int32), WIDTH, top1.Scratch(torch.device("cpu")))
    nothing = torch.zeros(BATCH, WIDTH, dtype=torch.int32), torch.zeros(BATCH, dtype=torch.int32)
    for slot in range(WIDTH):
        decide.take_slot(drafts, slot, slots[slot], *nothing, tau, WIDTH)
        if not int(drafts.total[slot]):
            break
    return slot + 1, drafts.token.tolist()


def near(rank, seed):
    """Return logits whose first request may go on to the end or not at all, and the tau at which a last bit decides."""
    slots = random_slots(seed)
    slots[:, 1:] = torch.linspace(0, 1, VOCAB)
    slots[1:, 0, seed] = 40.0
    return noisy(rank, slots), boundary(slots)


def decisions(rank):
    found = {"same": [], "alone": [], "ranks": [], "async": []}
    for seed in range(12):
        slots = random_slots(seed)
        found["same"].append((Drafter().propose(slots), Drafter(alone=True).propose(slots)))
        slots, tau = near(rank, seed)
        found["alone"].append(alone(slots, tau))
        found["ranks"].append(Drafter(tau).propose(slots, rows=PLAIN))
        found["async"].append(Drafter(tau, asynchronous=True).propose(slots, rows=PLAIN))
    return found


def stuck(_):
    time.sleep(600)


def test_ranks_that_wait_for_ever_are_a_failure():
    with pytest.raises(AssertionError, match="2 of 2 ranks still wait"):
        gloo.run(stuck, seconds=5)


@pytest.fixture(scope="module")
def decided():
    return gloo.run(decisions)


def test_the_ranks_draft_what_one_rank_alone_would(decided):
    for ranks, single in decided[0]["same"]:
        assert ranks == single
    assert len({forwards for (forwards, _, _), _ in decided[0]["same"]}) > 2


def test_l8_a_last_bit_makes_ranks_part_that_decide_alone(decided):
    assert [forwards for forwards, _ in decided[0]["alone"]] != [forwards for forwards, _ in decided[1]["alone"]]


@pytest.mark.parametrize("kind", ["ranks", "async"])
def test_a_last_bit_changes_nothing_where_one_rank_decides(decided, kind):
    for first, second in zip(decided[0][kind], decided[1][kind], strict=True):
        assert first[:2] == second[:2]
        if kind == "async":
            assert first[2] == second[2]
            assert len(first[2][0]) == WIDTH
    assert {forwards for forwards, _, _ in decided[0][kind]} == {1, WIDTH}


class Fault:
    """Replaces a function by one that raises, once it was called `after` times."""

    def __init__(self, owner, name, after):
        self.owner, self.name, self.left, self.sound = owner, name, after, getattr(owner, name)
        setattr(owner, name, self)

    def __call__(self, *arguments):
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("planted")
        return self.sound(*arguments)


def plant(drafter, what, after):
    """Plant a fault into this rank: into its shard, or into what the first rank alone does."""
    if what == "shard":
        return Fault(getattr(drafter, draft.RANKS).head, "logits", after)
    owner = {"append": draft.Context, "decide": decide, "assemble": decide}[what]
    return Fault(owner, what, after)


def faults(rank, cases):
    """Return for every case what three proposals gave on this rank, and what was logged."""
    found, lines = [], Lines()
    logging.getLogger("vllm.radiance").addHandler(lines)
    for what, where, after, width, asynchronous in cases:
        guard.broken.clear()
        lines.lines = []
        drafter = Drafter(asynchronous=asynchronous)
        fault = plant(drafter, what, after) if where == rank and what != "nothing" else None
        proposals = [drafter.propose(random_slots(seed), width) for seed in range(3)]
        if fault:
            setattr(fault.owner, fault.name, fault.sound)
        local = getattr(drafter, draft.RANKS).head is not None
        found.append({"proposals": proposals, "lines": lines.lines, "local": local})
    return found


# What fails, on which rank, after how many calls, drafts a proposal, and whether scheduling is asynchronous.
PAIRS = [(0, 0), (0, 1), (1, 0), (1, 1)]
SHARD = [("shard", rank, after, width, 0) for rank in (0, 1) for after in (0, 1) for width in (1, WIDTH)]
FIRST = [(what, 0, after, WIDTH, late) for what in ("append", "decide", "assemble") for after, late in PAIRS]
CASES = [("nothing", 0, 0, WIDTH, 0), *SHARD, *FIRST]


@pytest.fixture(scope="module")
def failed():
    return list(zip(CASES, *gloo.run(faults, CASES), strict=True))


def test_whatever_fails_the_ranks_launch_the_same_forwards_and_draft_the_same(failed):
    for case, first, second in failed:
        assert [found[:2] for found in first["proposals"]] == [found[:2] for found in second["proposals"]], case
        if case[-1]:
            assert first["proposals"] == second["proposals"], case


def test_after_a_shard_failed_all_ranks_gather_and_say_so_once(failed):
    mine = "radiance-patch: shard-local drafting failed and is off in this process; requests go on"
    other = "radiance-patch: shard-local drafting failed on another rank; all gather from now on"
    for (what, where, *case), *ranks in failed:
        assert [found["local"] for found in ranks] == [what != "shard"] * 2, (what, where, case)
        if what == "shard":
            assert ranks[where]["lines"] == [mine], (where, case)
            assert ranks[1 - where]["lines"] == [other], (where, case)


def test_what_is_gathered_then_gives_what_the_shards_would_have(failed):
    _, sound, _ = failed[0]
    assert sound["lines"] == []
    for (what, _, _, width, _), first, _ in failed:
        if what == "shard" and width == WIDTH:
            assert first["proposals"][2] == sound["proposals"][2]


def test_a_fault_of_the_first_rank_is_logged_once_and_all_draft_on_like_vllm(failed):
    line = "radiance-patch: draft controller failed and is off in this process; requests go on"
    for (what, *case), first, second in failed:
        if what not in ("shard", "nothing"):
            assert (first["lines"], second["lines"]) == ([line], []), (what, case)
            assert first["proposals"][2][0] == WIDTH, (what, case)
