"""Top-1 token and its softmax probability in one read of the logits, whole or by vocabulary shard.

The obvious way (softmax, then max) writes and reads [B, V] floats twice. Here every
block of a row leaves three numbers, its maximum, the sum of exponentials below it and
the index, and a row is finished from those (the online softmax of arXiv 1805.02867).
Ties go to the lowest token id. A row that is -inf throughout has probability NaN.
"""

from __future__ import annotations

import torch

from .backend import runs_on, tl, triton


def top1_reference(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the top-1 token [B] int64 and its probability [B] float32 of logits [B, V], in plain PyTorch."""
    largest, total, token = partial_reference(logits)
    return finish(largest[None], total[None], token[None])


def partial_reference(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Reduce logits [B, V] to (max [B] float32, sum of exp(x - max) [B] float32, argmax [B] int64)."""
    values = logits.float()
    largest = values.amax(dim=-1)
    total = torch.exp(values - largest[:, None]).sum(dim=-1)
    token = (values == largest[:, None]).to(torch.int8).argmax(dim=-1)
    return largest, total, token


def finish(largest: torch.Tensor, total: torch.Tensor, token: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Finish the softmax of a row from the three numbers of each of its P parts.

    largest, total: [P, B] float32. token: [P, B] int64, ids in the whole vocabulary, parts
    in the order of their ids. Returns token [B] int64 and probability [B] float32.
    """
    top = largest.amax(dim=0)
    first = (largest == top).to(torch.int8).argmax(dim=0)
    scaled = torch.where(total > 0, total * torch.exp(largest - top), 0.0)
    return token.gather(0, first[None])[0], 1.0 / scaled.sum(dim=0)


@triton.jit
def _partial_kernel(
    logits, stride, vocab, parts, largest_out, total_out, token_out, BLOCK: tl.constexpr
):  # fmt: skip
    """Program (row, part) reduces BLOCK columns of its row; [row, part] of each output is written."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    column = part * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(logits + row * stride + column, mask=column < vocab, other=float("-inf")).to(tl.float32)
    top = tl.max(value, axis=0)
    # In a block of -inf alone the difference is NaN, and the sum must be zero.
    power = tl.where(value == float("-inf"), 0.0, tl.exp(value - top))
    place = row * parts + part
    tl.store(largest_out + place, top)
    tl.store(total_out + place, tl.sum(power, axis=0))
    tl.store(token_out + place, tl.min(tl.where(value == top, column, vocab), axis=0))


@triton.jit
def _finish_kernel(largest, total, token, parts, token_out, prob_out, PARTS: tl.constexpr):
    """Program (row) finishes one row from its parts."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS)
    there = part < parts
    top_of = tl.load(largest + row * parts + part, mask=there, other=float("-inf"))
    sum_of = tl.load(total + row * parts + part, mask=there, other=0.0)
    id_of = tl.load(token + row * parts + part, mask=there, other=2147483647)
    top = tl.max(top_of, axis=0)
    scaled = tl.where(top_of == float("-inf"), 0.0, sum_of * tl.exp(top_of - top))
    tl.store(prob_out + row, 1.0 / tl.sum(scaled, axis=0))
    tl.store(token_out + row, tl.min(tl.where(top_of == top, id_of, 2147483647), axis=0).to(tl.int64))


def _block(rows: int) -> int:
    """Choose how many columns a program takes: few enough of them for a small batch to fill a GPU."""
    return 2048 if rows <= 8 else 8192


def partial(logits: torch.Tensor, padding: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Reduce logits [B, V] of any float type to (max, sum of exp(x - max), argmax), each [B, P], by parts of a row.

    The last `padding` columns do not count. float32, float32, int32; ids count from the row's start.
    """
    rows, vocab = logits.shape[0], logits.shape[1] - padding
    block = _block(rows)
    parts = triton.cdiv(vocab, block)
    largest = torch.empty(rows, parts, dtype=torch.float32, device=logits.device)
    total = torch.empty_like(largest)
    token = torch.empty(rows, parts, dtype=torch.int32, device=logits.device)
    _partial_kernel[rows, parts](
        logits, logits.stride(0), vocab, parts, largest, total, token, BLOCK=block, num_warps=block // 1024
    )
    return largest, total, token


def top1(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the top-1 token [B] int64 and its probability [B] float32 of logits [B, V], V contiguous."""
    if not runs_on(logits.device):
        return top1_reference(logits)
    largest, total, token = partial(logits)
    ids = torch.empty(logits.shape[0], dtype=torch.int64, device=logits.device)
    probability = torch.empty(logits.shape[0], dtype=torch.float32, device=logits.device)
    parts = largest.shape[1]
    _finish_kernel[(logits.shape[0],)](
        largest, total, token, parts, ids, probability, PARTS=triton.next_power_of_2(parts)
    )
    return ids, probability
