"""The worker's side of the V2 runner's depth: any number of draft forwards in FULL graphs, tails merged on the device.

One graph holds one draft step and is replayed as often as the step's plan says; the
first pass of a step that drafts nothing runs without its head, and keeps the drafter's KV. Called by the hunks
v2_*. All ranks follow the plan in the scheduler's output, even one whose part has failed,
and verify the first rank's drafts.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

from . import counters, guard, live, ranks, settings, shortlist, tail
from .live import FEATURE
from .steps import PLAN, Plan

logger = logging.getLogger("vllm.radiance")

P = ParamSpec("P")
R = TypeVar("R")

# On a speculator whose decode graphs hold one draft step.
ONE_STEP = "_radiance_one_step"


class Depth:
    """One worker's state.

    forwards: what the step at hand was planned to draft with; None leaves it to vLLM.
    answered: what propose was then told. capturing: the graphs without a head are under
    way. config: kept, as the state is found by its identity. group: the other ranks, if any.
    shortlist: of the draft head's tokens, None where it is whole.
    """

    def __init__(self, config: Any, device: torch.device) -> None:
        self.config = config
        seqs = config.scheduler_config.max_num_seqs
        self.ceiling: int = config.num_speculative_tokens
        self.longest: int = config.model_config.max_model_len
        self.best = torch.zeros(seqs, dtype=torch.int64, device=device)
        self.drafted = torch.zeros(seqs, 2, dtype=torch.int32, device=device)
        self.counters = counters.Counters(device, settings.current().log_seconds)
        self.shortlist = shortlist.of(config, device)
        self.forwards: int | None = None
        self.answered: int | None = None
        self.capturing = False
        self.group = ranks.group_of(config.parallel_config, device)

    def merge(self, runner: Any, batch: Any, drafts: torch.Tensor, sampled: torch.Tensor) -> None:
        """Merge the requests' continuations into their drafts [B, K], and count."""
        states = runner.req_states
        self._follow(states.all_token_ids.gpu, batch.idx_mapping, states.total_len.gpu)
        forwards, self.answered = self.answered, None
        if forwards is None:
            return
        # The host's bound on the tokens of the longest request, this step's included.
        longest = int(batch.seq_lens_cpu_upper_bound[: batch.num_reqs].max()) + 1
        tail.merge(
            states.all_token_ids.gpu, batch.idx_mapping, states.total_len.gpu, drafts, sampled, forwards,
            min(longest, self.longest), self.best, self.drafted,
            self.counters.device[counters.bucket(batch.num_reqs)],
        )  # fmt: skip
        self.counters.count_step(batch.num_reqs, forwards, self.ceiling, 0)
        self.counters.log_now_and_then()

    @property
    def short(self) -> shortlist.Shortlist | None:
        """The shortlist while the drafter chooses from it; after a fault it is kept all the same: graphs read it."""
        usable = self.shortlist is not None and self.shortlist.attached and shortlist.FEATURE not in guard.broken
        return self.shortlist if usable else None

    @guard.safe(shortlist.FEATURE, lambda *_: None)
    def _follow(self, *tokens: torch.Tensor) -> None:
        """Let the shortlist look at the requests' tokens; a fault leaves the list as it is."""
        if self.short is not None:
            self.short.follow(*tokens)


# By the identity of the VllmConfig, which the runner, its speculator and their graphs share.
_depths: dict[int, Depth] = {}


def depth_of(owner: Any) -> Depth | None:
    """Return the state of whoever holds the VllmConfig; None where the feature never was, or no longer is, live.

    A rank among others goes on: it would launch other forwards than they do.
    """
    depth = _depths.get(id(owner.vllm_config))
    return None if depth is None or (FEATURE in guard.broken and depth.group is None) else depth


def _alone(answer: Callable[P, R]) -> Callable[P, R]:
    """Return what a hook that failed answers: vLLM's, by `answer`.

    Raises RuntimeError on a rank among others, which follow a plan that it would not.
    """

    def stock(*args: P.args, **kwargs: P.kwargs) -> R:
        owner: Any = args[0]
        if owner.vllm_config.parallel_config.tensor_parallel_size > 1:
            raise RuntimeError(f"radiance-patch: {FEATURE} failed on one rank of several")
        return answer(*args, **kwargs)

    return stock


@guard.safe(FEATURE, _alone(lambda *_: None))
def keep_tokens(runner: Any) -> None:
    """Move the requests' tokens to device memory, where vLLM cannot be asked to keep them (GPUModelRunner.__init__).

    vLLM before 0.32 (v1/worker/gpu/states.py); nothing has been written to them yet.
    """
    states = runner.req_states
    if dense(runner, False):
        tokens = states.all_token_ids
        states.all_token_ids = type(tokens)(
            (states.max_num_reqs, states.max_model_len), dtype=tokens.dtype, device=tokens.device
        )


@guard.safe(FEATURE, _alone(lambda runner, use_dense_all_token_ids: use_dense_all_token_ids))
def dense(runner: Any, use_dense_all_token_ids: bool) -> bool:
    """Return whether the runner keeps the requests' tokens in device memory (GPUModelRunner.__init__).

    Makes the worker's state, before memory is profiled, and says once what is live.
    """
    if FEATURE in guard.broken or not settings.current().dynamic_draft:
        return use_dense_all_token_ids
    reason = live.refusal(runner.vllm_config)
    if reason:
        logger.info("radiance-patch: draft depth is not live on the V2 runner: %s", reason)
        return use_dense_all_token_ids
    _depths[id(runner.vllm_config)] = Depth(runner.vllm_config, runner.device)
    size = 4 * runner.max_num_reqs * runner.max_model_len >> 20
    logger.info("radiance-patch: draft depth and verbatim tails are live on the V2 runner (%d MiB of tokens)", size)
    return True


@guard.safe(FEATURE, _alone(lambda *_: None))
def begin(runner: Any, scheduler_output: Any, dummy_run: bool) -> None:
    """Take the step's plan (GPUModelRunner.execute_model); none for dummy runs, which follow vLLM."""
    depth = depth_of(runner)
    if depth is None:
        return
    plan: Plan | None = None if dummy_run else getattr(scheduler_output, PLAN, None)
    depth.forwards = None if plan is None else min(plan.forwards, depth.ceiling)


@guard.safe(FEATURE, _alone(lambda speculator, num_speculative_tokens, dummy_run: num_speculative_tokens))
def forwards(speculator: Any, num_speculative_tokens: int, dummy_run: bool) -> int:
    """Return how many drafts propose is to make (propose, as it starts)."""
    depth = depth_of(speculator)
    if depth is None:
        return num_speculative_tokens
    depth.answered = None
    if dummy_run or depth.forwards is None:
        return num_speculative_tokens
    depth.answered = min(depth.forwards, num_speculative_tokens)
    depth.forwards = None
    return depth.answered


def settle(speculator: Any, dummy_run: bool) -> None:
    """Settle how many drafts propose makes, where it cannot be told (propose of vLLM before 0.32, as it starts)."""
    forwards(speculator, speculator.num_speculative_steps, dummy_run)


def enough(speculator: Any, step: int = 1) -> bool:
    """Whether what was settled is drafted before step `step`, the first pass being step 0 (propose, and its loops)."""
    return step >= _settled(speculator)


def _settled(speculator: Any) -> int:
    depth = depth_of(speculator)
    most: int = speculator.num_speculative_steps
    return most if depth is None or depth.answered is None else depth.answered


@guard.safe(FEATURE, _alone(lambda *_: False))
def headless(speculator: Any) -> bool:
    """Whether the first pass ends before its head (_prefill): nothing is drafted from it, and it only fills the KV."""
    depth = depth_of(speculator)
    return depth is not None and (depth.capturing or depth.answered == 0)


@guard.safe(FEATURE, _alone(lambda *_: None))
def capture_headless(speculator: Any) -> None:
    """Capture the first pass once more without its head, for one row a request (capture, after vLLM's own).

    One row a request is what a step has after one that drafted nothing, and drafting
    nothing is then likely again.
    """
    depth = depth_of(speculator)
    if depth is None:
        return
    manager = speculator.prefill_cudagraph_manager
    descs = manager._capture_descs
    depth.capturing = True
    try:
        manager._capture_descs = {
            mode: [_without_head(desc) for desc in kept if desc.uniform_token_count == 1]
            for mode, kept in descs.items()
            if mode.name == "FULL"
        }
        manager.capture(
            speculator._prefill,
            speculator.model_state,
            speculator.target_input_buffers,
            speculator.block_tables,
            speculator.target_attn_groups,
            speculator.kv_cache_config,
            progress_bar_desc="Capturing prefill CUDA graphs without a head",
        )
    finally:
        manager._capture_descs = descs
        depth.capturing = False


def _without_head(desc: Any) -> Any:
    """Return the name of a graph without a head: the same shape, told apart by a bound that says nothing new."""
    return dataclasses.replace(desc, max_query_len=desc.uniform_token_count)


@guard.safe(FEATURE, _alone(lambda speculator, prefill_batch_desc: prefill_batch_desc))
def first_pass(speculator: Any, prefill_batch_desc: Any) -> Any:
    """Return the graph for the first pass (propose): the one without a head, where nothing is drafted."""
    depth = depth_of(speculator)
    if depth is None or depth.answered != 0:
        return prefill_batch_desc
    bare = _without_head(prefill_batch_desc)
    return bare if bare in speculator.prefill_cudagraph_manager.graphs else prefill_batch_desc


@guard.safe(FEATURE, _alone(lambda speculator, decode_fn: decode_fn))
def one_step(speculator: Any, decode_fn: Callable[..., None]) -> Callable[..., None]:
    """Return what a decode graph captures (capture): one draft step instead of the whole loop."""
    if depth_of(speculator) is None or not _updates_in_place(speculator):
        return decode_fn

    def step(num_reqs: int, num_tokens_padded: int, attn_metadata: Any, *others: Any, **named: Any) -> None:
        if attn_metadata is not None:
            speculator.block_tables.compute_slot_mappings(
                speculator.idx_mapping[:num_reqs],
                speculator.input_buffers.query_start_loc[: num_reqs + 1],
                speculator.input_buffers.positions[:num_reqs],
                num_tokens_padded,
            )
            for group in itertools.chain.from_iterable(speculator.attn_groups):
                group.update_draft_decode_metadata(attn_metadata)
        # A replay goes on from the step before, the first pass's being 0 (prepare_prefill_inputs). The
        # warm-up runs before captures have no first pass: counting on, they would write past a row's end.
        if torch.cuda.is_current_stream_capturing():
            speculator.current_draft_step.add_(1)
        else:
            speculator.current_draft_step.fill_(1)
        speculator._generate_draft(num_reqs, num_tokens_padded, attn_metadata, *others, **named)

    setattr(speculator, ONE_STEP, True)
    return step


def _updates_in_place(speculator: Any) -> bool:
    """Whether a graph can hold a draft step and the update of what its attention reads, by vLLM's own word."""
    if hasattr(speculator, "supports_decode_metadata_update"):
        return bool(speculator.supports_decode_metadata_update)
    # Before vLLM 0.32; with one draft there is no step to capture.
    return bool(speculator.use_fused_multi_step_decode)


def more_steps(speculator: Any, batch_desc: Any, num_speculative_steps: int) -> None:
    """Replay the graph of one step for the steps after the first (_fused_multi_step_decode)."""
    if getattr(speculator, ONE_STEP, False):
        for _ in range(num_speculative_steps - 2):
            speculator.decode_cudagraph_manager.run_fullgraph(batch_desc)


def settled_steps(speculator: Any, batch_desc: Any) -> None:
    """Replay the graph of one step as often as was settled (_fused_multi_step_decode of vLLM before 0.32)."""
    more_steps(speculator, batch_desc, _settled(speculator))


def merge(runner: Any, input_batch: Any, draft_tokens: torch.Tensor, num_sampled: torch.Tensor) -> None:
    """Merge the verbatim continuations into the drafts, in place (GPUModelRunner.sample_tokens, after propose).

    draft_tokens: [B, K] int64. num_sampled: [B] int32.
    """
    depth = depth_of(runner)
    if depth is None:
        return
    try:
        if FEATURE not in guard.broken:
            depth.merge(runner, input_batch, draft_tokens, num_sampled)
    except Exception:
        guard.fail(FEATURE)
    if FEATURE in guard.broken:
        depth.answered = None
        # A step that drafted nothing leaves -1, which the embedding of the next rows would read.
        draft_tokens.clamp_(min=0)
    if depth.group is not None:
        ranks.share(draft_tokens, depth.group)
