"""The verbatim continuation: where the end of a request's context stood before, and what followed it there.

For a context of n tokens: the longest suffix, of MIN_MATCH to MAX_MATCH tokens, that
also ends earlier in the context, the most recent such place on a tie, and the up to K
tokens that followed it. Longer suffixes count as MAX_MATCH: two places that agree over
that many tokens are told apart by recency alone, so a constant context costs no more
than any other.
"""

from __future__ import annotations

import torch

from .backend import runs_on, tl, triton

MIN_MATCH = 3
MAX_MATCH = 64
BLOCK = 1024


def match_reference(
    context: torch.Tensor, slots: torch.Tensor, lengths: torch.Tensor, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Match every request of a batch, in plain PyTorch.

    context: [S, W] int32, token p of slot s at [s, p % W]; only the last W tokens count.
    slots: [B] int32. lengths: [S] int32, tokens in each slot's context. Returns the
    continuation [B, width] int32 (0 past its end) and its length [B] int32.
    """
    window = context.shape[1]
    batch = slots.shape[0]
    found = torch.zeros(batch, width, dtype=torch.int32, device=context.device)
    count = torch.zeros(batch, dtype=torch.int32, device=context.device)
    for row in range(batch):
        length = int(lengths[int(slots[row])])
        if length <= MIN_MATCH:
            continue
        start = max(0, length - window)
        order = torch.arange(start, length, device=context.device) % window
        tokens = context[int(slots[row])][order]
        end = _best_end(tokens)
        if end:
            tail = tokens[end : end + width]
            found[row, : tail.shape[0]] = tail
            count[row] = tail.shape[0]
    return found, count


def _best_end(tokens: torch.Tensor) -> int:
    """Return where the earlier occurrence of the longest suffix ends (exclusive), 0 if there is none."""
    size = tokens.shape[0]
    ends = torch.arange(MIN_MATCH, size, device=tokens.device)
    equal = torch.ones_like(ends, dtype=torch.bool)
    length = torch.zeros_like(ends)
    for back in range(1, MAX_MATCH + 1):
        index = ends - back
        equal = equal & (index >= 0) & (tokens[index.clamp(min=0)] == tokens[max(size - back, 0)]) & (back <= size)
        if not bool(equal.any()):
            break
        length += equal
    best = int(length.max()) if length.numel() else 0
    return int(ends[length == best][-1]) if best >= MIN_MATCH else 0


@triton.jit
def match_kernel(
    context, slots, lengths, best, window,
    MIN_MATCH: tl.constexpr, MAX_MATCH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Program (row, block) looks at BLOCK places where an earlier occurrence may end.

    best[row] becomes the largest length * 2^32 + end over all blocks; the caller gives zeros.
    """
    row = tl.program_id(0)
    # A slot of -1 marks a row that is not to be acted on (V2 runner); whoever reads `best` leaves it alone.
    slot = tl.maximum(tl.load(slots + row), 0).to(tl.int64)
    length = tl.load(lengths + slot)
    start = tl.maximum(length - window, 0)
    first = start + MIN_MATCH + tl.program_id(1) * BLOCK
    if first < length:
        base = context + slot * window
        end = first + tl.arange(0, BLOCK)
        equal = end < length
        matched = tl.zeros([BLOCK], tl.int32)
        back = 1
        going = True
        while going:
            last = tl.load(base + (length - back) % window)
            index = end - back
            token = tl.load(base + index % window, mask=equal & (index >= start), other=-1)
            equal = equal & (index >= start) & (token == last)
            matched += equal.to(tl.int32)
            back += 1
            going = (back <= MAX_MATCH) & (tl.sum(equal.to(tl.int32), axis=0) > 0)
        key = tl.where(matched >= MIN_MATCH, matched.to(tl.int64) * 4294967296 + end, 0)
        top = tl.max(key, axis=0)
        if top > 0:
            tl.atomic_max(best + row, top)


@triton.jit
def _gather_kernel(
    context,
    slots,
    lengths,
    best,
    found,
    count,
    window,
    width,
    WIDTH: tl.constexpr,
):
    """Program (row) copies the continuation and clears best[row] for the next batch."""
    row = tl.program_id(0)
    slot = tl.load(slots + row).to(tl.int64)
    length = tl.load(lengths + slot)
    end = (tl.load(best + row) & 4294967295).to(tl.int32)
    tl.store(best + row, tl.zeros([], tl.int64))
    base = context + slot * window
    lane = tl.arange(0, WIDTH)
    there = (lane < width) & (end + lane < tl.where(end > 0, length, 0))
    token = tl.load(base + (end + lane) % window, mask=there, other=0)
    tl.store(found + row * width + lane, token, mask=lane < width)
    tl.store(count + row, tl.sum(there.to(tl.int32), axis=0))


def match(
    context: torch.Tensor, slots: torch.Tensor, lengths: torch.Tensor, width: int, longest: int, best: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Match every request of a batch; arguments and results as in `match_reference`.

    longest: no context of the batch is longer; it sizes the grid, so no copy from the
    device is needed. best: scratch [>= B] int64, all zeros before and after.
    """
    if not runs_on(context.device):
        return match_reference(context, slots, lengths, width)
    batch, window = slots.shape[0], context.shape[1]
    found = torch.empty(batch, width, dtype=torch.int32, device=context.device)
    count = torch.empty(batch, dtype=torch.int32, device=context.device)
    blocks = max(1, triton.cdiv(min(longest, window) - MIN_MATCH, BLOCK))
    match_kernel[batch, blocks](
        context, slots, lengths, best, window, MIN_MATCH=MIN_MATCH, MAX_MATCH=MAX_MATCH, BLOCK=BLOCK
    )
    _gather_kernel[(batch,)](
        context, slots, lengths, best, found, count, window, width, WIDTH=triton.next_power_of_2(width), num_warps=1
    )
    return found, count
