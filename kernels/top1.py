"""Top-1 token and its softmax probability in one read of the logits, whole or by vocabulary shard.

The obvious way (softmax, then max) writes and reads [B, V] floats twice. Here every
block of a row leaves three numbers, its maximum, the sum of exponentials below it and
the index, and a row is finished from those (the online softmax of arXiv 1805.02867).
Ties go to the lowest token id. A row that is -inf throughout, or holds a NaN, has
probability NaN and some token of the vocabulary.
"""

from __future__ import annotations

from typing import Any

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


def join(
    largest: torch.Tensor, total: torch.Tensor, token: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return a row's three numbers, each [B], from those of its P parts.

    largest, total: [P, B] float32. token: [P, B] int64, ids in the whole vocabulary, parts
    in the order of their ids.
    """
    top = largest.amax(dim=0)
    first = (largest == top).to(torch.int8).argmax(dim=0)
    whole = torch.where(largest == float("-inf"), 0.0, total * torch.exp(largest - top)).sum(dim=0)
    return top, whole, token.gather(0, first[None])[0]


def finish(largest: torch.Tensor, total: torch.Tensor, token: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Finish the softmax of a row from its parts (see `join`): token [B] int64 and probability [B] float32."""
    _, whole, first = join(largest, total, token)
    return first, torch.where(whole > 0, 1.0 / whole, float("nan"))


@triton.jit
def reduce_block(logits, stride, vocab, row, part, BLOCK: tl.constexpr):
    """Return maximum, sum of exponentials below it and lowest argmax of block `part` of a row."""
    column = part * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(logits + row * stride + column, mask=column < vocab, other=float("-inf")).to(tl.float32)
    top = tl.max(value, axis=0)
    # In a block of -inf alone the difference is NaN, and the sum must be zero.
    power = tl.where(value == float("-inf"), 0.0, tl.exp(value - top))
    return top, tl.sum(power, axis=0), tl.min(tl.where(value == top, column, vocab), axis=0)


@triton.jit
def _partial_kernel(
    logits, stride, vocab, parts, largest_out, total_out, token_out, BLOCK: tl.constexpr
):  # fmt: skip
    """Program (row, part) reduces BLOCK columns of its row; [row, part] of each output is written."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    top, power, token = reduce_block(logits, stride, vocab, row, part, BLOCK)
    place = row * parts + part
    tl.store(largest_out + place, top)
    tl.store(total_out + place, power)
    tl.store(token_out + place, token)


@triton.jit
def finish_row(
    logits, stride, vocab, parts, largest, total, token, arrived, row, part, BLOCK: tl.constexpr, PARTS: tl.constexpr
):  # fmt: skip
    """Reduce block `part` of a row, and finish the row where this is its last block to arrive.

    Returns (last, token, probability); only the program whose `last` is 1 has the row's.
    arrived[row] is zero before and after.
    """
    top, power, lowest = reduce_block(logits, stride, vocab, row, part, BLOCK)
    place = row * parts + part
    tl.store(largest + place, top)
    tl.store(total + place, power)
    tl.store(token + place, lowest)
    # Every thread's store comes before the count, and the count releases it to whoever counts last.
    tl.debug_barrier()
    last = tl.atomic_add(arrived + row, 1, sem="acq_rel") == parts - 1
    first, probability = lowest, power
    if last:
        tl.store(arrived + row, 0)
        lane = tl.arange(0, PARTS)
        there = lane < parts
        # From the L2 cache: another block's numbers are never in this one's L1.
        places = row * parts + lane
        top_of = tl.load(largest + places, mask=there, other=float("-inf"), cache_modifier=".cg")
        sum_of = tl.load(total + places, mask=there, other=0.0, cache_modifier=".cg")
        id_of = tl.load(token + places, mask=there, other=2147483647, cache_modifier=".cg")
        highest = tl.max(top_of, axis=0)
        scaled = tl.where(top_of == float("-inf"), 0.0, sum_of * tl.exp(top_of - highest))
        whole = tl.sum(scaled, axis=0)
        probability = tl.where(whole > 0, 1.0 / whole, float("nan"))
        first = tl.min(tl.where(top_of == highest, id_of, 2147483647), axis=0)
        first = tl.where(first < vocab, first, 0)  # NaN equals nothing, and the token is looked up whatever it is
    return last, first, probability


@triton.jit
def _top1_kernel(
    logits, stride, vocab, parts, largest, total, token, arrived, token_out, prob_out,
    BLOCK: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Program (row, part) reduces BLOCK columns; the last of a row writes its token and probability."""
    row = tl.program_id(0).to(tl.int64)
    last, first, probability = finish_row(
        logits, stride, vocab, parts, largest, total, token, arrived, row, tl.program_id(1), BLOCK, PARTS
    )
    if last:
        tl.store(prob_out + row, probability)
        tl.store(token_out + row, first.to(tl.int64))


class Scratch:
    """Where the blocks of a row leave their numbers, kept from call to call: allocating anew costs a launch's time.

    largest, total, token: at least rows * parts numbers of one call. arrived: [>= rows] int32,
    blocks of a row that are done, zeros between calls.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._reserve(0, 0)

    def _reserve(self, rows: int, places: int) -> None:
        self.largest = torch.empty(places, dtype=torch.float32, device=self._device)
        self.total = torch.empty_like(self.largest)
        self.token = torch.empty(places, dtype=torch.int32, device=self._device)
        self.arrived = torch.zeros(rows, dtype=torch.int32, device=self._device)

    def launch(self, kernel: Any, logits: torch.Tensor, *arguments: Any) -> None:
        """Launch `kernel`, whose first arguments are those of `finish_row`, on every block of logits [B, V]."""
        rows, vocab = logits.shape
        block = _block(rows)
        parts = triton.cdiv(vocab, block)
        if rows > self.arrived.shape[0] or rows * parts > self.largest.shape[0]:
            self._reserve(max(rows, self.arrived.shape[0]), max(rows * parts, self.largest.shape[0]))
        kernel[rows, parts](
            logits, logits.stride(0), vocab, parts, self.largest, self.total, self.token, self.arrived, *arguments,
            BLOCK=block, PARTS=triton.next_power_of_2(parts), num_warps=block // 1024,
        )  # fmt: skip


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


def top1(logits: torch.Tensor, scratch: Scratch | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the top-1 token [B] int64 and its probability [B] float32 of logits [B, V], V contiguous.

    scratch: one of this stream, to be given again in the next call.
    """
    if not runs_on(logits.device):
        return top1_reference(logits)
    ids = torch.empty(logits.shape[0], dtype=torch.int64, device=logits.device)
    probability = torch.empty(logits.shape[0], dtype=torch.float32, device=logits.device)
    (scratch or Scratch(logits.device)).launch(_top1_kernel, logits, ids, probability)
    return ids, probability
