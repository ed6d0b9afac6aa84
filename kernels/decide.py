"""The rule, slot by slot: go on drafting, take the verbatim continuation, or stop and verify.

Pure functions over arrays; nothing here knows vLLM. After slot j's forward, for every
request still going:

- its drafter's token is the continuation's token j: keep the drafts before j and the
  continuation from j on, and stop;
- else, confidence (the product of the top-1 probabilities of the slots before j) is at
  least tau: keep draft j, and go on;
- else stop.

A forward is only asked for where its result can change what is kept: past the point
where the next confidence falls below tau, only while the continuation may still agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from . import counters, top1
from .backend import runs_on, tl, triton


@dataclass
class Drafts:
    """One proposal of a batch of B requests and at most K drafts each.

    token: [B, K] int64, the drafter's tokens, written as far as kept. confidence: [B] float32.
    kept: [B] int32, drafter's tokens kept. tail: [B] int32, 1 where the continuation takes
    over. going: [B] int32, 1 where another forward is wanted. total: [K] int32, how many were
    still going after each slot.
    """

    token: torch.Tensor
    confidence: torch.Tensor
    kept: torch.Tensor
    tail: torch.Tensor
    going: torch.Tensor
    total: torch.Tensor

    @classmethod
    def start(cls, batch: int, width: int, device: torch.device) -> Drafts:
        """Return the state before the first slot."""
        return cls(
            token=torch.zeros(batch, width, dtype=torch.int64, device=device),
            confidence=torch.ones(batch, dtype=torch.float32, device=device),
            kept=torch.zeros(batch, dtype=torch.int32, device=device),
            tail=torch.zeros(batch, dtype=torch.int32, device=device),
            going=torch.ones(batch, dtype=torch.int32, device=device),
            total=torch.zeros(width, dtype=torch.int32, device=device),
        )


def decide(
    drafts: Drafts,
    slot: int,
    token: torch.Tensor,
    probability: torch.Tensor,
    continuation: torch.Tensor,
    length: torch.Tensor,
    tau: float,
    forwards: int,
) -> None:
    """Apply the rule after slot `slot`'s forward, in place.

    token: [B] int64. probability: [B] float32. continuation: [B, K] int32. length: [B]
    int32, its tokens. forwards: most forwards at this batch size.
    """
    going = drafts.going > 0
    drafts.token[:, slot] = torch.where(going, token, drafts.token[:, slot])
    agrees = going & (slot < length) & (continuation[:, slot] == token)
    keeps = going & ~agrees & (drafts.confidence >= tau)
    drafts.tail.copy_(torch.where(agrees, 1, drafts.tail))
    drafts.kept.copy_(torch.where(keeps, slot + 1, drafts.kept))
    drafts.confidence.copy_(torch.where(keeps, drafts.confidence * probability, drafts.confidence))
    worth = (drafts.confidence >= tau) | (slot + 1 < length)
    more = slot + 1 < min(forwards, drafts.token.shape[1])
    drafts.going.copy_(keeps & worth if more else torch.zeros_like(keeps))
    drafts.total[slot] = drafts.going.sum()


def assemble_reference(
    drafts: Drafts, continuation: torch.Tensor, length: torch.Tensor, filler: int, forwards: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Do what `assemble` says, in plain PyTorch; the counts come as [6] int64."""
    width = drafts.token.shape[1]
    lane = torch.arange(width, device=drafts.token.device)
    from_drafter = lane < drafts.kept[:, None]
    from_context = (drafts.tail[:, None] > 0) & (lane < length[:, None]) & ~from_drafter
    token = torch.where(from_drafter, drafts.token, torch.where(from_context, continuation.long(), filler))
    count = (from_drafter | from_context).sum(dim=1).to(torch.int32)
    tail = drafts.tail > 0
    deep = ~tail & (drafts.kept >= min(forwards, width))
    shallow = ~tail & ~deep
    batch = torch.full((), token.shape[0], device=token.device)
    counts = [batch, drafts.kept.sum(), tail.sum(), (count - drafts.kept).sum(), shallow.sum(), deep.sum()]
    return token, count, torch.stack([value.to(torch.int64) for value in counts])


@triton.jit
def _slot_kernel(
    largest, total_of, token_of, parts, ids, drafts, confidence, kept, tail, going, total,
    continuation, length, slot, width, forwards, tau, PARTS: tl.constexpr,
):  # fmt: skip
    """Program (row) finishes one row's softmax from its parts and applies the rule of `decide` to it."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS)
    there = part < parts
    top_of = tl.load(largest + row * parts + part, mask=there, other=float("-inf"))
    sum_of = tl.load(total_of + row * parts + part, mask=there, other=0.0)
    id_of = tl.load(token_of + row * parts + part, mask=there, other=2147483647)
    top = tl.max(top_of, axis=0)
    scaled = tl.where(top_of == float("-inf"), 0.0, sum_of * tl.exp(top_of - top))
    probability = 1.0 / tl.sum(scaled, axis=0)
    token = tl.min(tl.where(top_of == top, id_of, 2147483647), axis=0)
    tl.store(ids + row, token.to(tl.int64))
    if tl.load(going + row) > 0:
        tl.store(drafts + row * width + slot, token.to(tl.int64))
        have = tl.load(length + row)
        conf = tl.load(confidence + row)
        agrees = (slot < have) & (tl.load(continuation + row * width + slot) == token)
        keeps = (conf >= tau) & (agrees == 0)
        if agrees:
            tl.store(tail + row, 1)
        if keeps:
            tl.store(kept + row, slot + 1)
            conf = conf * probability
            tl.store(confidence + row, conf)
        more = keeps & ((conf >= tau) | (slot + 1 < have)) & (slot + 1 < forwards) & (slot + 1 < width)
        tl.store(going + row, more.to(tl.int32))
        if more:
            tl.atomic_add(total + slot, 1)


def take_slot(
    drafts: Drafts,
    slot: int,
    logits: torch.Tensor,
    continuation: torch.Tensor,
    length: torch.Tensor,
    tau: float,
    forwards: int,
) -> torch.Tensor:
    """Pick slot `slot`'s tokens from logits [B, V] and apply the rule; returns the tokens, [B] int64."""
    if not runs_on(logits.device):
        token, probability = top1.top1_reference(logits)
        decide(drafts, slot, token, probability, continuation, length, tau, forwards)
        return token
    largest, total, token = top1.partial(logits)
    rows, parts = largest.shape
    ids = torch.empty(rows, dtype=torch.int64, device=logits.device)
    _slot_kernel[(rows,)](
        largest, total, token, parts, ids, drafts.token, drafts.confidence, drafts.kept, drafts.tail, drafts.going,
        drafts.total, continuation, length, slot, drafts.token.shape[1], forwards, tau,
        PARTS=triton.next_power_of_2(parts), num_warps=1,
    )  # fmt: skip
    return ids


@triton.jit
def _assemble_kernel(
    token, kept_of, tail_of, continuation, length, slots, drafted, totals, out, count_out, filler, forwards, width,
    WIDTH: tl.constexpr, FIRST: tl.constexpr,
):  # fmt: skip
    """Program (row) assembles one request's drafts and counts them."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, WIDTH)
    kept = tl.load(kept_of + row)
    tail = tl.load(tail_of + row)
    end = tl.where(tail > 0, tl.maximum(tl.load(length + row), kept), kept)
    mine = tl.load(token + row * width + lane, mask=lane < kept, other=filler)
    copied = tl.load(continuation + row * width + lane, mask=(lane >= kept) & (lane < end), other=filler)
    tl.store(out + row * width + lane, tl.where(lane < kept, mine, copied.to(tl.int64)), mask=lane < width)
    tl.store(count_out + row, end)
    slot = tl.load(slots + row)
    tl.store(drafted + slot * 2, kept)
    tl.store(drafted + slot * 2 + 1, end)
    deep = (kept >= tl.minimum(forwards, width)) & (tail == 0)
    tl.atomic_add(totals + FIRST, tl.full([], 1, tl.int64))
    tl.atomic_add(totals + FIRST + 1, kept.to(tl.int64))
    tl.atomic_add(totals + FIRST + 2, tail.to(tl.int64))
    tl.atomic_add(totals + FIRST + 3, (end - kept).to(tl.int64))
    tl.atomic_add(totals + FIRST + 4, ((tail == 0) & (deep == 0)).to(tl.int64))
    tl.atomic_add(totals + FIRST + 5, deep.to(tl.int64))


def assemble(
    drafts: Drafts,
    continuation: torch.Tensor,
    length: torch.Tensor,
    slots: torch.Tensor,
    drafted: torch.Tensor,
    totals: torch.Tensor,
    forwards: int,
    filler: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what to verify, [B, K] int64 with `filler` past the drafts, and the number of drafts, [B] int32.

    slots, drafted: see Context; drafted is written. totals: one row of Counters.device, added to.
    """
    batch, width = drafts.token.shape
    if not runs_on(drafts.token.device):
        token, count, counts = assemble_reference(drafts, continuation, length, filler, forwards)
        drafted[slots.long()] = torch.stack([drafts.kept, count], dim=1)
        totals[: counts.shape[0]] += counts
        return token, count
    token = torch.empty_like(drafts.token)
    count = torch.empty_like(drafts.kept)
    _assemble_kernel[(batch,)](
        drafts.token, drafts.kept, drafts.tail, continuation, length, slots, drafted, totals, token, count, filler,
        forwards, width, WIDTH=triton.next_power_of_2(width), FIRST=counters.PROPOSALS, num_warps=1,
    )  # fmt: skip
    return token, count
