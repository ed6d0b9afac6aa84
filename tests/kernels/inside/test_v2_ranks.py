from types import SimpleNamespace

import pytest
import torch

from kernels import guard, speculator, tail
from kernels.live import FEATURE
from kernels.steps import PLAN, Plan
from tests.kernels.inside import gloo
from tests.kernels.inside.test_ranks import Fault

SEQS, LONGEST, WIDTH = 4, 32, 4
TOKENS = [[9, 1, 2, 3, 5, 6, 7, 8, 1, 2, 3], [4, 4, 2, 6]]
DRAFTS = [[5, 30, 31, 32], [20, 21, 22, 23]]
FORWARDS = (2, 4, 0, 3)


class Runner:
    """The V2 runner, and its speculator, as the hooks see them."""

    def __init__(self):
        self.vllm_config = SimpleNamespace(
            scheduler_config=SimpleNamespace(max_num_seqs=SEQS),
            model_config=SimpleNamespace(max_model_len=LONGEST, get_vocab_size=lambda: 100),
            speculative_config=SimpleNamespace(use_local_argmax_reduction=False),
            num_speculative_tokens=WIDTH,
            parallel_config=SimpleNamespace(tensor_parallel_size=2),
        )
        tokens = torch.zeros(SEQS, LONGEST, dtype=torch.int32)
        for row, known in zip(tokens, TOKENS, strict=False):
            row[: len(known)] = torch.tensor(known)
        lengths = torch.tensor([len(known) for known in TOKENS] + [0, 0], dtype=torch.int32)
        self.req_states = SimpleNamespace(
            all_token_ids=SimpleNamespace(gpu=tokens), total_len=SimpleNamespace(gpu=lengths)
        )
        self.batch = SimpleNamespace(
            num_reqs=2,
            idx_mapping=torch.tensor([0, 1], dtype=torch.int32),
            seq_lens_cpu_upper_bound=torch.tensor([11, 4]),
        )
        speculator._depths[id(self.vllm_config)] = speculator.Depth(self.vllm_config, torch.device("cpu"))

    def step(self, forwards, drafts):
        """Play a step: returns the draft forwards launched, whether without a head, and the drafts to verify."""
        output = SimpleNamespace(**{PLAN: Plan(forwards, forwards, {})})
        speculator.begin(self, output, dummy_run=False)
        launched = speculator.forwards(self, WIDTH, dummy_run=False)
        headless = speculator.headless(self)
        drafts = torch.tensor(drafts)
        drafts[:, launched:] = -1
        speculator.merge(self, self.batch, drafts, torch.tensor([2, 1], dtype=torch.int32))
        return launched, headless, drafts.tolist()


def steps(rank, cases):
    """Return for every case what each step gave on this rank: the first rank's drafts are DRAFTS, others' are not."""
    found = []
    for where in cases:
        guard.broken.clear()
        runner = Runner()
        fault = Fault(tail, "merge", 1) if rank == where else None
        drafts = [[token + rank for token in row] for row in DRAFTS]
        found.append([runner.step(forwards, drafts) for forwards in FORWARDS])
        assert (FEATURE in guard.broken) == (rank == where)
        if fault:
            tail.merge = fault.sound
    return found


@pytest.fixture(scope="module")
def facts():
    return gloo.run(steps, (None, 0, 1))


def test_the_plan_is_followed_and_the_first_ranks_drafts_verified_whatever_fails_where(facts):
    first, second = facts
    assert first == second
    for case in first:
        assert [(launched, headless) for launched, headless, _ in case] == [(n, n == 0) for n in FORWARDS]
        assert all(token >= 0 for _, _, drafts in case for row in drafts for token in row)


def test_a_fault_elsewhere_costs_nothing_and_one_of_the_first_rank_the_tails(facts):
    sound, at_first, elsewhere = facts[0]
    assert sound[0][2] == [[5, 6, 7, 8], [20, 21, 0, 0]]
    assert elsewhere == sound
    assert at_first[0] == sound[0]
    assert at_first[1:] != sound[1:]


@pytest.mark.parametrize("size", [1, 2])
def test_a_rank_among_others_ends_rather_than_leave_their_plan(size, monkeypatch):
    def broken(_):
        raise ValueError("planted")

    monkeypatch.setattr(speculator, "depth_of", broken)
    monkeypatch.setattr(guard, "broken", set())
    config = SimpleNamespace(parallel_config=SimpleNamespace(tensor_parallel_size=size))
    owner = SimpleNamespace(vllm_config=config)
    if size == 1:
        assert speculator.forwards(owner, 4, dummy_run=False) == 4
        assert not speculator.headless(owner)
        return
    for hook, arguments in (
        (speculator.forwards, (4, False)),
        (speculator.headless, ()),
        (speculator.begin, (None, 0)),
    ):
        with pytest.raises(RuntimeError, match="failed on one rank of several"):
            hook(owner, *arguments)
