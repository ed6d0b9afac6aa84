"""Dynamic verify width: a request is given as many verify rows as it has lately accepted drafts, and a margin.

Scheduler side, CPU only. Lossless: a draft that is not verified is a draft not proposed.
Called by the hunks scheduler_observe, scheduler_cap and async_scheduler_cap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import settings
from .guard import guarded
from .steps import planner_of

# On the Request, so that it dies with the request and survives its preemption.
AVERAGE = "_radiance_accepted"
# On the SchedulerOutput: the drafts scheduled in it were never proposed (see note_drafting).
SKIPPED = "_radiance_drafter_skipped"


def average_after(average: float | None, accepted: int, proposed: int, alpha: float) -> float:
    """Return the moving average of accepted drafts after one more verification.

    average: None before the first. accepted <= proposed: counts. Accepting all of a cut
    list says only "at least so many": it counts one more, so that the average can climb
    out of its own cap, and never lowers it, since a grammar or the end of the context may
    have cut the list far below the cap.
    """
    observed = float(accepted)
    if accepted >= proposed:
        observed = max(observed + 1.0, average or 0.0)
    # In this form no rounding moves an average that equals what was observed.
    return observed if average is None else average + alpha * (observed - average)


def width(average: float | None, proposed: int, margin: int, floor: int) -> int:
    """Return how many of `proposed` drafts to verify: all of them until there is evidence."""
    if average is None:
        return proposed
    return min(proposed, max(floor, math.ceil(average) + margin))


def batch_width(widths: Sequence[int], captured: Sequence[int]) -> int | None:
    """Return one width for a batch whose decode graphs each hold a single width.

    The smallest captured width that covers the widest request; None if none does.
    """
    widest = max(widths)
    return min((size for size in captured if size >= widest), default=None)


def proposed_drafts(drafts: Sequence[int], invalid: int, *, placeholders: bool) -> int:
    """Count the drafts in a scheduled list that a drafter really proposed.

    drafts: token ids, -1 for none. invalid: slots the grammar rejected. placeholders:
    whether an all -1 list stands for drafts the worker holds (async scheduling, V2 runner).
    All zeros is what the V1 runner hands over when it skips the drafter.
    """
    real = next((index for index, token in enumerate(drafts) if token < 0), len(drafts))
    if real:
        return real if any(drafts[:real]) else 0
    return max(0, len(drafts) - invalid) if placeholders else 0


def _on() -> bool:
    return settings.current().dynamic_width


@guarded("dynamic verify width", _on)
def observe(scheduler: Any, scheduler_output: Any, request: Any, num_accepted: int) -> None:
    """Take one request's verification of this step into its average.

    Called from Scheduler.update_from_output with num_accepted drafts accepted.
    """
    if getattr(scheduler_output, SKIPPED, False):
        return
    request_id = request.request_id
    if _is_fresh(scheduler_output, request_id):
        return
    invalid = (scheduler_output.num_invalid_spec_tokens or {}).get(request_id, 0)
    drafts = scheduler_output.scheduled_spec_decode_tokens[request_id]
    proposed = proposed_drafts(drafts, invalid, placeholders=_placeholders(scheduler))
    if proposed > 0:
        before = getattr(request, AVERAGE, None)
        setattr(
            request,
            AVERAGE,
            average_after(before, min(num_accepted, proposed), proposed, settings.current().alpha),
        )


@guarded("dynamic verify width", _on)
def cap_batch(scheduler: Any, scheduler_output: Any = None) -> None:
    """Shorten the running requests' draft lists to their widths.

    Called at the end of Scheduler.update_draft_token_ids, and with the step's output at
    the end of AsyncScheduler._update_after_schedule, where all requests share one
    placeholder list: lists are replaced, never cut in place.
    """
    now = settings.current()
    if scheduler.use_v2_model_runner and planner_of(scheduler) is not None:
        return  # rows are planned with the depth there, see steps.py
    if scheduler_output is not None:
        _note_drafting(scheduler, scheduler_output)
    if len(scheduler.running) < now.min_batch:
        return
    drafting = [request for request in scheduler.running if request.spec_token_ids]
    if not drafting:
        return
    widths = [
        width(getattr(request, AVERAGE, None), len(request.spec_token_ids), now.margin, now.floor)
        for request in drafting
    ]
    captured = captured_widths(scheduler.vllm_config, len(scheduler.running), len(drafting[0].spec_token_ids))
    if captured is not None:
        uniform = batch_width(widths, captured)
        if uniform is None:
            return
        widths = [uniform] * len(drafting)
    for request, kept in zip(drafting, widths, strict=True):
        if kept < len(request.spec_token_ids):
            request.spec_token_ids = request.spec_token_ids[:kept]


def captured_widths(vllm_config: Any, batch: int, drafts: int) -> tuple[int, ...] | None:
    """Return the widths that have a FULL decode graph for this batch; None where any mix of widths is as good.

    vLLM captures uniform decode graphs for 1 + K rows a request alone (V1
    gpu_model_runner.py, uniform_decode_query_len; V2 cudagraph_utils.py), up to
    max_cudagraph_capture_size rows. Graphs for mixed batches, piecewise and varlen ones
    take any widths.
    """
    compilation = vllm_config.compilation_config
    mode = compilation.cudagraph_mode
    if not mode or mode.decode_mode().name != "FULL" or not mode.separate_routine():
        return None
    if getattr(vllm_config.speculative_config, "enable_adaptive_verification", False):
        return None
    largest = compilation.max_cudagraph_capture_size
    if largest is not None and batch * (1 + drafts) > largest:
        return None
    return (drafts,)


def _is_fresh(scheduler_output: Any, request_id: str) -> bool:
    """Whether a request was scheduled from the waiting queue: its drafts then only pad the batch (pad_spec_decode)."""
    return request_id in scheduler_output.scheduled_cached_reqs.resumed_req_ids or any(
        new.req_id == request_id for new in scheduler_output.scheduled_new_reqs
    )


def _placeholders(scheduler: Any) -> bool:
    return bool(scheduler.scheduler_config.async_scheduling or scheduler.use_v2_model_runner)


def _note_drafting(scheduler: Any, scheduler_output: Any) -> None:
    """Mark a step whose placeholders stand for no drafts.

    The V1 runner skips the drafter for the whole batch when one sequence comes within K
    tokens of the drafter's longest (gpu_model_runner.py, _input_fits_in_drafter), and
    under async scheduling the scheduler never sees the zeros it hands over instead.
    """
    setattr(scheduler_output, SKIPPED, getattr(scheduler, SKIPPED, False))
    if scheduler.use_v2_model_runner or not scheduler_output.num_scheduled_tokens:
        return
    longest = max(scheduler.requests[name].num_computed_tokens for name in scheduler_output.num_scheduled_tokens)
    speculative = scheduler.vllm_config.speculative_config
    needed = longest + scheduler.num_spec_tokens + (1 if speculative.use_dflash() else 0)
    limit = getattr(speculative.draft_model_config, "max_model_len", None)
    if limit is None:
        limit = scheduler.vllm_config.model_config.max_model_len
    setattr(scheduler, SKIPPED, needed > limit)
