"""The draft controller on the V1 model runner: how deep to draft, request by request and slot by slot.

The hooks at the end of this module are called by vLLM's runner and proposer. The rule is
decide.py, the requests' tokens context.py, the verbatim continuation match.py. Under
tensor parallelism the first rank alone has a controller, and ranks.py carries its word.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch

from . import counters, decide, guard, live, match, settings, top1
from .context import Context
from .ranks import Ranks, group_of

logger = logging.getLogger("vllm.radiance")

FEATURE = "draft controller"
SWITCH = live.SWITCH
NAME = "_radiance"  # the controller's attribute on the proposer
RANKS = "_radiance_ranks"  # that of the ranks, under tensor parallelism


class Proposal:
    """One call of propose: the drafts so far, and whether another forward is wanted.

    forwards: the most this batch may launch. slot: slots taken so far. copies: to the host so
    far; the lists of `Controller.finish` take one more, in the place of vLLM's own.
    """

    def __init__(self, controller: Controller, counts: torch.Tensor, width: int) -> None:
        context = controller.context
        self.forwards = min(controller.settings.depth_cap(counts.shape[0]), width)
        self.width = width
        self.slot = 0
        self.copies = 0
        # Nothing was sampled of a request within its prompt: vLLM verifies no draft of it.
        self.drafts = decide.Drafts.start(counts.clamp(max=1), width, controller.scratch)
        self.continuation, self.length = match.match(
            context.tokens, context.slots, context.lengths, width, context.longest, controller.best
        )
        self._going = controller.going
        self._event = controller.event

    def take(self, logits: torch.Tensor, tau: float) -> torch.Tensor:
        """Take a slot's logits [B, V]: returns its tokens [B] and starts the slot's one copy to the host."""
        slot = self.slot
        token = decide.take_slot(self.drafts, slot, logits, self.continuation, self.length, tau, self.forwards)
        self.slot += 1
        if self.slot < self.forwards:
            self.copies += 1
            self._going.copy_(self.drafts.total[slot : slot + 1], non_blocking=True)
            if self._event is not None:
                self._event.record()
        return token

    def rule(self, token: torch.Tensor, probability: torch.Tensor, tau: float) -> torch.Tensor:
        """Take a slot's tokens [B] int64 and probabilities [B] float32: returns how many requests go on, [1] int32."""
        slot = self.slot
        decide.decide(self.drafts, slot, token, probability, self.continuation, self.length, tau, self.forwards)
        self.slot += 1
        self.copies += 1  # of the answer, on every rank
        return self.drafts.total[slot : slot + 1]

    def done(self) -> bool:
        """Whether every request has stopped; waits for the slot's copy unless the cap alone has decided."""
        if self.slot >= self.forwards:
            return True
        if self._event is not None:
            self._event.synchronize()
        return int(self._going) == 0


class Controller:
    """One worker's controller, kept on its proposer.

    noted: [B] int32, how many tokens each request got in this step, once they are in the context.
    proposal: the one under way; while it is None every hook leaves vLLM to itself.
    """

    def __init__(self, device: torch.device, config: Any) -> None:
        scheduler = config.scheduler_config
        self.settings = settings.current()
        self.device = device
        self.asynchronous = bool(scheduler.async_scheduling)
        self.most = config.num_speculative_tokens
        longest = config.model_config.max_model_len + self.most + 1
        self.context = Context(scheduler.max_num_seqs, longest, device)
        self.best = torch.zeros(scheduler.max_num_seqs, dtype=torch.int64, device=device)
        on_gpu = device.type == "cuda"
        self.event = torch.cuda.Event() if on_gpu else None
        self.going = torch.zeros(1, dtype=torch.int32, pin_memory=on_gpu)
        self.counters = counters.Counters(device, self.settings.log_seconds)
        self.scratch = top1.Scratch(device)
        self.noted: torch.Tensor | None = None
        self.proposal: Proposal | None = None

    def note(self, batch: Any, sampled: torch.Tensor, counts: torch.Tensor) -> None:
        """Take this step's tokens into the context, before vLLM has them on the host.

        batch: the runner's input batch. sampled: [B, S], the first counts[b] of a row accepted.
        """
        names = batch.req_ids
        complete = None
        if self.asynchronous:  # host tokens are complete only of requests that were not in the last step
            last = batch.prev_req_id_to_index or {}
            complete = [name for name in names if name not in last]
        self.context.follow(names, batch.token_ids_cpu, batch.num_tokens_no_spec, complete)
        self._append(sampled, counts)

    def note_lists(self, batch: Any, sampled: list[list[int]]) -> None:
        """Take this step's tokens in, after vLLM has put them on the host (unpadded drafting)."""
        counts = np.array([len(tokens) for tokens in sampled], np.int32)
        table = np.zeros((len(sampled), max(1, counts.max(initial=0))), np.int32)
        for row, tokens in zip(table, sampled, strict=True):
            row[: len(tokens)] = tokens
        before = np.asarray(batch.num_tokens_no_spec[: len(sampled)]) - counts
        self.context.follow(batch.req_ids, batch.token_ids_cpu, before, None)
        self._append(torch.from_numpy(table).to(self.device), torch.from_numpy(counts).to(self.device))

    def _append(self, sampled: torch.Tensor, counts: torch.Tensor) -> None:
        self.noted = counts
        self.context.append(sampled, counts, self.counters.device[counters.bucket(sampled.shape[0])])

    def finish(self, drafted: Any) -> Any:
        """Return the drafts to verify: ragged lists, or [B, K] int64 where the runner scatters a tensor."""
        proposal, self.proposal, self.noted = self.proposal, None, None
        if proposal is None or proposal.slot == 0:
            return drafted
        batch = proposal.drafts.token.shape[0]
        token, count = decide.assemble(
            proposal.drafts, proposal.continuation, proposal.length, self.context.slots, self.context.drafted,
            self.counters.device[counters.bucket(batch)], proposal.forwards,
        )  # fmt: skip
        self.counters.count_step(batch, proposal.slot, proposal.width, proposal.copies)
        self.counters.log_now_and_then()
        if self.asynchronous:
            return token
        rows = torch.cat([count[:, None].long(), token], dim=1).tolist()
        return [tokens[:kept] for kept, *tokens in rows]


def refusal(drafter: Any) -> str | None:
    """Return why a proposer is left to vLLM, or None; looked at once, when it is loaded."""
    config, now = drafter.vllm_config, settings.current()
    speculative, parallel = config.speculative_config, config.parallel_config
    base = next(kind for kind in type(drafter).__mro__ if kind.__name__ == "SpecDecodeBaseProposer")
    overridden = [
        name for name in ("propose", "_greedy_sample", "_sample_draft_tokens", "prepare_next_token_ids_padded")
        if getattr(type(drafter), name) is not getattr(base, name)
    ]  # fmt: skip
    reasons = {
        "RADIANCE_DYNAMIC_DRAFT is 0": not now.dynamic_draft,
        **live.parallelisms(parallel),
        # Drafts launched from Python cost more than they win there (tests/bench/RESULTS.md).
        "RADIANCE_DYNAMIC_DRAFT is not set, and the V1 runner is as fast without": SWITCH not in now.given,
        f"method {speculative.method} is neither MTP nor Eagle": speculative.method not in ("mtp", "eagle", "eagle3"),
        f"{type(drafter).__name__} overrides {', '.join(overridden)}": bool(overridden),
        "drafting is parallel": speculative.parallel_drafting,
        "draft_sample_method is probabilistic": drafter._enable_probabilistic_draft_probs,
        "the drafter reduces the vocabulary locally (use_local_argmax_reduction)": drafter.use_local_argmax_reduction,
        "drafter and target have different vocabularies": drafter.use_heterogeneous_vocab,
        "prompt embeddings have no tokens to match": config.model_config.enable_prompt_embeds,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _controller(proposer: Any) -> Controller | None:
    return None if FEATURE in guard.broken else getattr(proposer, NAME, None)


def attach(proposer: Any) -> None:
    """Give a proposer its controller (SpecDecodeBaseProposer.load_model, before memory is profiled).

    Raises SettingsError when the environment asks for one that cannot be.
    """
    reason = refusal(proposer)
    if reason is None:
        ranks = _ranks(proposer)
        if ranks is None or ranks.leads:
            _attach(proposer)
        return
    if live.asked():
        raise settings.SettingsError(
            f"radiance-patch: {SWITCH}=1 cannot be honoured on the V1 runner: {reason}; unset it to start without"
        )
    logger.info("radiance-patch: draft controller is not live on the V1 runner: %s", reason)


def _ranks(proposer: Any) -> Ranks | None:
    """Make and return what a proposer says to the other ranks; None where there are none.

    Not `guard.safe`: a rank without it would leave the others waiting.
    """
    group = group_of(proposer.vllm_config.parallel_config, proposer.device)
    if group is None:
        return None
    ranks = Ranks(proposer.model, group, proposer.device)
    setattr(proposer, RANKS, ranks)
    if ranks.leads:
        logger.info("radiance-patch: this rank decides for all %d of the tensor parallel group", ranks.size)
    return ranks


@guard.safe(FEATURE, lambda *_: None)
def _attach(proposer: Any) -> None:
    controller = Controller(proposer.device, proposer.vllm_config)
    setattr(proposer, NAME, controller)
    logger.info(
        "radiance-patch: draft controller is live on the V1 runner (tau %g, schedule %s, %d MiB of context, %s)",
        controller.settings.tau,
        ",".join(f"{size}:{depth}" for size, depth in controller.settings.schedule) or "none",
        controller.context.tokens.nbytes >> 20,
        "async: rows keep their width" if controller.asynchronous else "ragged rows",
    )


@guard.safe(FEATURE, lambda *_: None)
def note(
    proposer: Any, gpu_input_batch: Any, sampled_token_ids: torch.Tensor, valid_sampled_tokens_count: torch.Tensor
) -> None:
    """Note this step's tokens (SpecDecodeBaseProposer.prepare_next_token_ids_padded).

    sampled_token_ids: [B, 1 + K] int32. valid_sampled_tokens_count: [B] int32, how many of a row are accepted.
    """
    controller = _controller(proposer)
    if controller is not None:
        controller.note(gpu_input_batch, sampled_token_ids, valid_sampled_tokens_count)


@guard.safe(FEATURE, lambda *_: None)
def prepare(runner: Any, sampled_token_ids: Any) -> None:
    """Note this step's tokens where they are lists: unpadded drafting (GPUModelRunner.propose_draft_token_ids)."""
    controller = _controller(runner.drafter)
    if controller is not None and isinstance(sampled_token_ids, list):
        controller.note_lists(runner.input_batch, sampled_token_ids)


@guard.safe(FEATURE, lambda *_: None)
def begin(proposer: Any, num_speculative_tokens: int, batch_size: int) -> None:
    """Start a proposal of at most so many drafts for each request of the batch (SpecDecodeBaseProposer.propose).

    A proposal whose tokens were not noted, a warm-up say, is left to vLLM.
    """
    ranks = getattr(proposer, RANKS, None)
    if ranks is not None:
        ranks.width = num_speculative_tokens
    controller = _controller(proposer)
    if controller is not None:
        counts = controller.noted
        engaged = num_speculative_tokens > 0 and counts is not None and counts.shape[0] == batch_size
        controller.proposal = Proposal(controller, counts, num_speculative_tokens) if engaged else None


def sample(proposer: Any, hidden_states: torch.Tensor) -> torch.Tensor | None:
    """Pick a slot's tokens [B] from hidden states [B, H], or None for vLLM to pick (_greedy_sample)."""
    ranks = getattr(proposer, RANKS, None)
    if ranks is None:
        return _sample(proposer, hidden_states)
    tokens: torch.Tensor = ranks.slot(hidden_states, lambda *found: _rule(proposer, *found))
    return tokens


@guard.safe(FEATURE, lambda *_: None)
def _sample(proposer: Any, hidden_states: torch.Tensor) -> torch.Tensor | None:
    controller = _controller(proposer)
    if controller is None or controller.proposal is None:
        return None
    return controller.proposal.take(proposer.model.compute_logits(hidden_states), controller.settings.tau)


def _go_on(proposer: Any, token: torch.Tensor, probability: torch.Tensor) -> torch.Tensor:
    """Return what vLLM would."""
    return torch.ones_like(token[:1])


@guard.safe(FEATURE, _go_on)
def _rule(proposer: Any, token: torch.Tensor, probability: torch.Tensor) -> torch.Tensor:
    """Return on the first rank whether to go on, [1]; as vLLM would where no proposal is under way."""
    controller = _controller(proposer)
    if controller is None or controller.proposal is None:
        return _go_on(proposer, token, probability)
    return controller.proposal.rule(token, probability, controller.settings.tau)


def stopped(proposer: Any) -> bool:
    """Whether nobody needs another draft forward; asked before each (SpecDecodeBaseProposer.propose)."""
    ranks = getattr(proposer, RANKS, None)
    return _stopped(proposer) if ranks is None else ranks.stopped()


@guard.safe(FEATURE, lambda *_: False)
def _stopped(proposer: Any) -> bool:
    controller = _controller(proposer)
    return controller is not None and controller.proposal is not None and controller.proposal.done()


def finish(runner: Any, draft_token_ids: Any) -> Any:
    """Return the drafts to verify (GPUModelRunner.propose_draft_token_ids).

    draft_token_ids: what vLLM would verify, [B, columns drafted] int64 where the loop was left early.
    Returns ragged lists, or [B, K] int64 under async scheduling. Lists go through the scheduler,
    which takes the first rank's; a tensor stays on its rank, and is made the first rank's there.
    """
    ranks = getattr(runner.drafter, RANKS, None)
    if ranks is None:
        return _finish(runner.drafter, draft_token_ids, runner.num_spec_tokens)
    drafted = _widened(_finish(runner.drafter, draft_token_ids, ranks.width), ranks.width)
    return ranks.share(drafted) if runner.use_async_scheduling and drafted.shape[1] else drafted


def _finish(proposer: Any, drafted: Any, width: int) -> Any:
    controller = getattr(proposer, NAME, None)
    if controller is None:
        return drafted
    if FEATURE not in guard.broken:
        try:
            return controller.finish(drafted)
        except Exception:
            guard.fail(FEATURE)
    return _widened(drafted, width)


def _widened(drafted: Any, width: int) -> Any:
    """Give back the columns that a loop left early has cut: the runner scatters `width` of them a row."""
    missing = width - drafted.shape[1] if torch.is_tensor(drafted) and drafted.shape[1] else 0
    return torch.nn.functional.pad(drafted, (0, missing)) if missing > 0 else drafted
