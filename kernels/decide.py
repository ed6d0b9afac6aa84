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
from .top1 import Scratch, finish_row


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
    scratch: Scratch

    @classmethod
    def start(cls, going: torch.Tensor, width: int, scratch: Scratch) -> Drafts:
        """Return the state before the first slot. going: [B] int32, 1 for the requests that draft."""
        batch = going.shape[0]
        # In rows of whole 16 bytes, since Triton compiles a kernel anew for pointers that are not.
        kept, tail, total = going.new_zeros(3, -(-max(batch, width) // 4) * 4)
        return cls(
            token=torch.zeros(batch, width, dtype=torch.int64, device=going.device),
            confidence=torch.ones(batch, dtype=torch.float32, device=going.device),
            kept=kept[:batch],
            tail=tail[:batch],
            going=going,
            total=total[:width],
            scratch=scratch,
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
    shallow = ~tail & ~deep & (count > 0)
    counts = [(count > 0).sum(), drafts.kept.sum(), tail.sum(), (count - drafts.kept).sum(), shallow.sum(), deep.sum()]
    return token, count, torch.stack([value.to(torch.int64) for value in counts])


# Unspecialised: a kernel compiled anew for slot 0, slot 1 and a cap of 1 would stall the first requests.
@triton.jit(do_not_specialize=["slot", "width", "forwards"])
def _slot_kernel(
    logits, stride, vocab, parts, largest, total_of, token_of, arrived, ids, drafts, confidence, kept, tail, going,
    total, continuation, length, slot, width, forwards, tau, BLOCK: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Program (row, part) reduces a block; the last of a row applies the rule of `decide` to it."""
    row = tl.program_id(0).to(tl.int64)
    last, token, probability = finish_row(
        logits, stride, vocab, parts, largest, total_of, token_of, arrived, row, tl.program_id(1), BLOCK, PARTS
    )
    if last:
        live = tl.load(going + row) > 0
        have = tl.load(length + row)
        conf = tl.load(confidence + row)
        agrees = live & (slot < have) & (tl.load(continuation + row * width + slot) == token)
        keeps = live & (conf >= tau) & (agrees == 0)
        conf = tl.where(keeps, conf * probability, conf)
        more = keeps & ((conf >= tau) | (slot + 1 < have)) & (slot + 1 < forwards) & (slot + 1 < width)
        tl.debug_barrier()  # no thread reads what another has already changed
        tl.store(ids + row, token.to(tl.int64))
        tl.store(drafts + row * width + slot, token.to(tl.int64), mask=live)
        tl.store(tail + row, 1, mask=agrees)
        tl.store(kept + row, slot + 1, mask=keeps)
        tl.store(confidence + row, conf, mask=keeps)
        tl.store(going + row, more.to(tl.int32))
        tl.atomic_add(total + slot, 1, mask=more)


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
    ids = torch.empty(logits.shape[0], dtype=torch.int64, device=logits.device)
    drafts.scratch.launch(
        _slot_kernel, logits, ids, drafts.token, drafts.confidence, drafts.kept, drafts.tail, drafts.going,
        drafts.total, continuation, length, slot, drafts.token.shape[1], forwards, tau,
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
    tl.atomic_add(totals + FIRST, (end > 0).to(tl.int64))
    tl.atomic_add(totals + FIRST + 1, kept.to(tl.int64))
    tl.atomic_add(totals + FIRST + 2, tail.to(tl.int64))
    tl.atomic_add(totals + FIRST + 3, (end - kept).to(tl.int64))
    tl.atomic_add(totals + FIRST + 4, ((tail == 0) & (deep == 0) & (end > 0)).to(tl.int64))
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

    A request that did not draft has none and is not counted.
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
