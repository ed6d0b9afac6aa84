import sys
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from kernels import draft, guard

VOCAB = 40


@pytest.fixture(autouse=True)
def _whole(monkeypatch):
    monkeypatch.setattr(guard, "broken", set())


class Proposer:
    """A proposer as the hooks see one: an attribute to keep the controller on, and a model that gives logits."""

    def __init__(self, logits=None):
        self.model = SimpleNamespace(compute_logits=lambda hidden: logits[int(hidden[0, 0])])


def controller(device, *, asynchronous=False, drafts=4):
    config = SimpleNamespace(
        scheduler_config=SimpleNamespace(async_scheduling=asynchronous, max_num_seqs=4),
        model_config=SimpleNamespace(max_model_len=64),
        num_speculative_tokens=drafts,
    )
    return draft.Controller(device, config)


def certain(token, batch):
    logits = torch.full((batch, VOCAB), -20.0)
    logits[:, token] = 20.0
    return logits


def propose(proposer, rows, width, device, within_prompt=()):
    """Play vLLM's loop: note, begin, sample, then ask before every further forward.

    within_prompt: the rows of which nothing was sampled.
    """
    own = getattr(proposer, draft.NAME, None)
    if own:
        own.note_lists(
            SimpleNamespace(
                req_ids=[f"r{i}" for i in range(len(rows))],
                token_ids_cpu=np.array([row + [-1] * (64 - len(row)) for row in rows], np.int32),
                num_tokens_no_spec=[len(row) for row in rows],
            ),
            [[] if place in within_prompt else row[-1:] for place, row in enumerate(rows)],
        )
    draft.begin(proposer, width, len(rows))
    taken = []
    for slot in range(width):
        if slot and draft.stopped(proposer):
            break
        taken.append(draft.sample(proposer, torch.full((len(rows), 1), float(slot), device=device)))
    stacked = None if taken[0] is None else torch.stack(taken, dim=1)
    return len(taken), draft.finish(SimpleNamespace(drafter=proposer, num_spec_tokens=width), stacked)


def test_without_a_controller_every_hook_leaves_vllm_alone(device):
    proposer = Proposer()
    assert propose(proposer, [[1, 2]], 3, device) == (3, None)


def test_a_tail_is_taken_and_the_loop_ends(device):
    rows = [[9, 1, 2, 3, 5, 6, 7, 8, 1, 2, 3]]
    proposer = Proposer([certain(5, 1).to(device)] * 4)
    setattr(proposer, draft.NAME, controller(device))
    assert propose(proposer, rows, 4, device) == (1, [[5, 6, 7, 8]])


def test_async_rows_keep_their_width(device):
    rows = [[9, 1, 2, 3, 5, 6, 7, 8, 1, 2, 3]]
    unsure = torch.zeros(1, VOCAB, device=device)
    unsure[0, 31] = 0.1
    proposer = Proposer([certain(30, 1).to(device), unsure, certain(32, 1).to(device)])
    setattr(proposer, draft.NAME, controller(device, asynchronous=True))
    forwards, drafts = propose(proposer, rows, 4, device)
    assert forwards == 3  # the third only because the continuation might have agreed
    assert drafts.tolist() == [[30, 31, 0, 0]]


def test_a_request_within_its_prompt_keeps_nobody_drafting(device, route):
    rows = [[9, 1, 2, 3, 5, 6, 7, 8, 1, 2, 3], [4, 4, 2, 6]]
    proposer = Proposer([certain(5, 2).to(device)] * 4)
    own = controller(device)
    setattr(proposer, draft.NAME, own)
    assert propose(proposer, rows, 4, device, within_prompt=[1]) == (1, [[5, 6, 7, 8], []])
    counts = own.counters.total()
    assert [counts[name] for name in ("proposals", "drafts", "tails", "tail_tokens")] == [1, 0, 1, 4]
    assert [counts[name] for name in ("stopped_by_confidence", "stopped_by_depth")] == [0, 0]


class Copies(TorchFunctionMode):
    """Counts, by name, the calls in draft.py that bring a tensor's values to the host."""

    def __init__(self):
        self.calls = Counter()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if sys._getframe(1).f_code.co_filename == draft.__file__:
            self.calls[function.__name__] += 1
        return function(*args, **(kwargs or {}))

    def found(self):
        to_host = ("copy_", "tolist", "item", "cpu", "numpy", "__bool__", "__float__", "__index__", "nonzero")
        return {name: self.calls[name] for name in to_host if self.calls[name]}


@pytest.mark.parametrize(
    ("width", "asynchronous", "copies", "found"),
    [
        (4, False, 3, {"copy_": 3, "tolist": 1}),  # the fourth slot is the last: nobody asks
        (4, True, 3, {"copy_": 3}),
        (1, False, 0, {"tolist": 1}),
        (1, True, 0, {}),
    ],
)
def test_a_slot_takes_one_copy_at_most_and_one_that_the_cap_has_ended_none(width, asynchronous, copies, found, device):
    proposer = Proposer([certain(5, 2).to(device)] * 4)
    own = controller(device, asynchronous=asynchronous, drafts=width)
    setattr(proposer, draft.NAME, own)
    with Copies() as seen:
        forwards, _ = propose(proposer, [[1, 2, 3], [4, 5]], width, device)
    assert forwards == width
    assert own.counters.total()["copies"] == copies
    assert seen.found() == found


def placeholders(drafts, width):
    """What vLLM's runner reads of the drafts for the next step, under async scheduling: `width` in a row a request."""
    assert isinstance(drafts, torch.Tensor)
    flat = [*drafts.flatten().tolist(), *[None] * 99]  # past the end lies anything
    return [flat[row * width : (row + 1) * width] for row in range(drafts.shape[0])]


def test_l4_the_runner_under_async_scheduling_gets_a_tensor_of_full_width_and_no_gap(device):
    """The seed handed it lists; a tensor as narrow as the loop left it would give a request its neighbour's drafts."""
    seed = [[5], [6]]
    with pytest.raises(AssertionError):
        placeholders(seed, 4)
    narrow = torch.tensor(seed)
    assert placeholders(narrow, 4)[0] == [5, 6, None, None]
    rows = [[9, 1, 2, 3, 5, 6, 7, 8, 1, 2, 3], [4, 4, 2, 6]]
    logits = certain(5, 2)
    logits[1] = 0
    logits[1, 6] = 0.1  # a guess, not worth a second forward
    proposer = Proposer([logits.to(device)] * 4)
    setattr(proposer, draft.NAME, controller(device, asynchronous=True))
    forwards, drafts = propose(proposer, rows, 4, device)
    assert (forwards, drafts.dtype) == (1, torch.int64)
    assert placeholders(drafts, 4) == [[5, 6, 7, 8], [6, 0, 0, 0]]


class Seed:
    """The seed's flags: set where a proposal may stop early, and left as they are where it does not apply."""

    def __init__(self):
        self.gate, self.stop = {}, False

    def begin(self, skip):
        if not skip:
            self.gate, self.stop = {}, False


def test_l3_a_proposal_that_is_vllms_finds_nothing_of_the_one_before(device):
    seed = Seed()
    seed.begin(skip=False)
    seed.gate, seed.stop = {"kept": [1]}, True
    seed.begin(skip=True)
    assert (seed.gate, seed.stop) == ({"kept": [1]}, True)

    rows = [[9, 1, 2, 3, 5, 6, 7, 8, 1, 2, 3]]
    proposer = Proposer([certain(5, 1).to(device)] * 4)
    setattr(proposer, draft.NAME, controller(device))
    for _ in range(2):  # ours and vLLM's in turn; ours may even have been left half way
        draft.begin(proposer, 4, 1)
        assert draft.sample(proposer, torch.zeros(1, 1)) is None
        assert not draft.stopped(proposer)
        kept = torch.ones(1, 4, dtype=torch.int64)
        assert draft.finish(SimpleNamespace(drafter=proposer, num_spec_tokens=4), kept) is kept
        assert propose(proposer, rows, 4, device)[0] == 1
        getattr(proposer, draft.NAME).note_lists(
            SimpleNamespace(req_ids=["r0"], token_ids_cpu=torch.tensor(rows).numpy(), num_tokens_no_spec=[11]), [[3]]
        )
        draft.begin(proposer, 4, 1)
        draft.sample(proposer, torch.zeros(1, 1))
        assert draft.stopped(proposer)
        draft.begin(proposer, 0, 1)  # vLLM asks for no draft at all: the flags go with the proposal
        assert not draft.stopped(proposer)
        getattr(proposer, draft.NAME).noted = None


def test_a_proposal_whose_tokens_were_not_noted_is_vllms(device):
    proposer = Proposer([certain(5, 1).to(device)])
    setattr(proposer, draft.NAME, controller(device))
    draft.begin(proposer, 3, 1)
    assert draft.sample(proposer, torch.zeros(1, 1)) is None
    assert not draft.stopped(proposer)
    kept = torch.ones(1, 3)
    assert draft.finish(SimpleNamespace(drafter=proposer, num_spec_tokens=3), kept) is kept


def test_nothing_of_one_proposal_is_left_for_the_next(device):
    rows = [[9, 1, 2, 3, 5, 6, 7, 8, 1, 2, 3]]
    proposer = Proposer([certain(5, 1).to(device)] * 4)
    own = controller(device)
    setattr(proposer, draft.NAME, own)
    propose(proposer, rows, 4, device)
    assert (own.proposal, own.noted) == (None, None)
    draft.begin(proposer, 4, 1)  # vLLM skipped the note: a warm-up
    assert not draft.stopped(proposer)


def test_a_fault_of_ours_is_logged_once_and_drafting_goes_on(device, caplog):
    def fail(hidden):
        raise RuntimeError("planted")

    rows = [[1, 2, 3, 4]]
    proposer = Proposer()
    proposer.model = SimpleNamespace(compute_logits=fail)
    setattr(proposer, draft.NAME, controller(device))
    for _ in range(2):
        forwards, drafts = propose(proposer, rows, 3, device)
        assert (forwards, drafts) == (3, None)
    assert [record.getMessage() for record in caplog.records] == [
        "radiance-patch: draft controller failed and is off in this process; requests go on"
    ]
    assert "planted" in caplog.text


def test_a_fault_half_way_gives_the_runner_its_width_back(device):
    proposer = Proposer([certain(5, 1).to(device)])
    setattr(proposer, draft.NAME, controller(device))
    guard.broken.add(draft.FEATURE)
    runner = SimpleNamespace(drafter=proposer, num_spec_tokens=4)
    assert draft.finish(runner, torch.ones(2, 1, dtype=torch.int64)).tolist() == [[1, 0, 0, 0]] * 2
