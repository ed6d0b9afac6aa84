"""Merging the verbatim continuation into drafts that lie on the device, at constant width.

The rows the next step verifies were not chosen yet when the drafts are made, so all K
columns must hold token ids: the drafter's as far as it went, the continuation from the
slot where it agrees with the drafter, and behind both whatever is at hand, since a row
that is verified anyway costs nothing more.
"""

from __future__ import annotations

import torch

from . import counters
from .backend import runs_on, tl, triton
from .match import BLOCK, MAX_MATCH, MIN_MATCH, match_kernel, match_reference

# Behind everything proposed: any token id does, and is never counted as a draft.
FILLER = 0


def merge_reference(
    drafts: torch.Tensor, continuation: torch.Tensor, length: torch.Tensor, forwards: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Merge, in plain PyTorch.

    drafts: [B, K] int64, the drafter's in the first `forwards` columns. continuation: [B, K]
    int32. length: [B] int32, its tokens. Returns the rows [B, K] int64, where the
    continuation takes over [B] int32 (min(forwards, K) where it does not), and how many
    columns hold drafts [B] int32.
    """
    width = drafts.shape[1]
    forwards = min(forwards, width)
    lane = torch.arange(width, device=drafts.device)
    there = lane < length[:, None]
    agrees = there & (lane < forwards) & (continuation == drafts)
    start = torch.where(agrees.any(dim=1), agrees.int().argmax(dim=1), forwards).to(torch.int32)
    end = torch.where(agrees.any(dim=1), torch.maximum(length, torch.full_like(length, forwards)), forwards)
    filled = torch.where(there, continuation.long(), torch.where(lane < forwards, drafts, FILLER))
    return torch.where(lane < start[:, None], drafts, filled), start, end.to(torch.int32)


@triton.jit
def _merge_kernel(
    context, slots, lengths, best, drafts, sampled, drafted, totals, window, forwards, width, stride,
    WIDTH: tl.constexpr, FILL: tl.constexpr, FIRST: tl.constexpr,
):  # fmt: skip
    """Program (row) reads the continuation that the match found, merges it into one row of drafts, and counts.

    best[row] is cleared for the next batch. drafted[slot] holds what was proposed last, of
    which sampled[row] - 1 tokens were accepted now.
    """
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row).to(tl.int64)
    end = (tl.load(best + row) & 4294967295).to(tl.int32)
    tl.store(best + row, tl.zeros([], tl.int64))
    got = tl.load(sampled + row).to(tl.int32)
    lane = tl.arange(0, WIDTH)
    inside = lane < width
    if (slot < 0) | (got <= 0):
        # A step that drafted nothing leaves -1, which an embedding must never read.
        held = tl.load(drafts + row * stride + lane, mask=inside, other=FILL)
        tl.store(drafts + row * stride + lane, tl.maximum(held, FILL), mask=inside)
    else:
        known = tl.load(lengths + slot)
        there = inside & (end + lane < tl.where(end > 0, known, 0))
        base = context + slot * window
        copied = tl.load(base + (end + lane) % window, mask=there, other=0).to(tl.int64)
        mine = tl.load(drafts + row * stride + lane, mask=inside & (lane < forwards), other=FILL)
        agrees = there & (lane < forwards) & (copied == mine)
        start = tl.min(tl.where(agrees, lane, forwards), axis=0)
        tail = tl.max(agrees.to(tl.int32), axis=0)
        merged = tl.where(there & (lane >= start), copied, mine)
        tl.store(drafts + row * stride + lane, merged, mask=inside)
        size = tl.sum(there.to(tl.int32), axis=0)
        stop = tl.where(tail > 0, tl.maximum(size, forwards), forwards)
        before = tl.load(drafted + slot * 2)
        before_end = tl.load(drafted + slot * 2 + 1)
        right = got - 1
        tl.store(drafted + slot * 2, start)
        tl.store(drafted + slot * 2 + 1, stop)
        tl.atomic_add(totals + FIRST, tl.full([], 1, tl.int64))
        tl.atomic_add(totals + FIRST + 1, start.to(tl.int64))
        tl.atomic_add(totals + FIRST + 2, tail.to(tl.int64))
        tl.atomic_add(totals + FIRST + 3, (stop - start).to(tl.int64))
        tl.atomic_add(totals + FIRST + 6, tl.minimum(right, before).to(tl.int64))
        tl.atomic_add(totals + FIRST + 7, tl.maximum(tl.minimum(right, before_end) - before, 0).to(tl.int64))
        tl.atomic_add(totals + FIRST + 8, tl.maximum(right - before_end, 0).to(tl.int64))


def merge(
    context: torch.Tensor,
    slots: torch.Tensor,
    lengths: torch.Tensor,
    drafts: torch.Tensor,
    sampled: torch.Tensor,
    forwards: int,
    longest: int,
    best: torch.Tensor,
    drafted: torch.Tensor,
    totals: torch.Tensor,
) -> None:
    """Match every request and merge its continuation into its drafts, in place.

    context [S, W] int32, slots [B], lengths [S] int32, longest, best: see `match.match`; a
    slot of -1 is skipped. drafts: [B, K] int64, last dimension contiguous; the drafter's
    tokens in the first `forwards` columns. sampled: [B] int32, tokens this step gave the
    request; 0 (a prefill chunk) leaves its row alone, -1s apart. drafted: [S, 2] int32, where the
    continuation began in what was last proposed, and where that ended. totals: one row of
    Counters.device, added to.
    """
    batch, width = drafts.shape
    forwards = min(forwards, width)
    if not runs_on(context.device):
        _merge_on_host(context, slots, lengths, drafts, sampled, forwards, drafted, totals)
        return
    window = context.shape[1]
    blocks = max(1, triton.cdiv(min(longest, window) - MIN_MATCH, BLOCK))
    match_kernel[batch, blocks](
        context, slots, lengths, best, window, MIN_MATCH=MIN_MATCH, MAX_MATCH=MAX_MATCH, BLOCK=BLOCK
    )
    _merge_kernel[(batch,)](
        context, slots, lengths, best, drafts, sampled, drafted, totals, window, forwards, width, drafts.stride(0),
        WIDTH=triton.next_power_of_2(width), FILL=FILLER, FIRST=counters.PROPOSALS, num_warps=1,
    )  # fmt: skip


def _merge_on_host(
    context: torch.Tensor,
    slots: torch.Tensor,
    lengths: torch.Tensor,
    drafts: torch.Tensor,
    sampled: torch.Tensor,
    forwards: int,
    drafted: torch.Tensor,
    totals: torch.Tensor,
) -> None:
    drafts.clamp_(min=FILLER)
    rows = ((sampled > 0) & (slots >= 0)).nonzero().flatten()
    held = slots[rows].long()
    found, count = match_reference(context, slots[rows], lengths, drafts.shape[1])
    merged, start, end = merge_reference(drafts[rows], found, count, forwards)
    right = sampled[rows].long() - 1
    before, before_end = drafted[held].long().unbind(dim=1)
    counts = {
        counters.PROPOSALS: torch.ones_like(right),
        counters.DRAFTS: start,
        counters.TAILS: (start < forwards),
        counters.TAIL_TOKENS: end - start,
        counters.ACCEPTED_DRAFTS: torch.minimum(right, before),
        counters.ACCEPTED_TAIL: (torch.minimum(right, before_end) - before).clamp(min=0),
        counters.ACCEPTED_FILLER: (right - before_end).clamp(min=0),
    }
    for column, values in counts.items():
        totals[column] += values.sum()
    drafts[rows] = merged
    drafted[held] = torch.stack([start, end], dim=1)
