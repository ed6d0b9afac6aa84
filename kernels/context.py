"""A device copy of every running request's tokens, for the matcher.

A row belongs to a request, not to a place in the batch: vLLM moves requests between
places, and a copy that followed the place kept the last owner's tokens. Rows are given
out when a request enters the batch and taken back when it leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from . import counters
from .backend import runs_on, tl, triton

# Bytes the copy may take; a longer context is seen through its last tokens.
LIMIT = 256 * 2**20

Array = Any  # numpy arrays; the tool's environment, where types are checked, has no numpy


class Context:
    """The token copies of at most `rows` requests.

    tokens: [rows, window] int32, token p of a request at [row, p % window]. lengths: [rows]
    int32, tokens known. drafted: [rows, 2] int32, what was last proposed to each: tokens of
    the drafter, drafts in all. slots: [B] int32, the row of each place of the batch.
    longest: no request of the batch is longer.
    """

    def __init__(self, rows: int, longest: int, device: torch.device, limit: int = LIMIT) -> None:
        self.device = device
        self.window = max(1, min(longest, limit // (4 * rows)))
        self.tokens = torch.zeros(rows, self.window, dtype=torch.int32, device=device)
        self.lengths = torch.zeros(rows, dtype=torch.int32, device=device)
        self.drafted = torch.zeros(rows, 2, dtype=torch.int32, device=device)
        self.slots = torch.zeros(0, dtype=torch.int32, device=device)
        self.longest = 0
        self._known: torch.Tensor | None = None
        self._row_of: dict[str, int] = {}
        self._seen: dict[str, int] = {}
        self._bound: dict[str, int] = {}
        self._free = list(range(rows - 1, -1, -1))

    def follow(self, names: Sequence[str], tokens: Array, counts: Array, complete: Iterable[str] | None) -> None:
        """Take over what the host knows of the batch `names`.

        tokens: [>= B, L] token ids by batch place. counts: [>= B], how many of each are
        known. complete: the requests whose host tokens are complete; for the others the
        device's own count goes on. None: all are, as under synchronous scheduling.
        """
        self._drop(set(names))
        fresh = set(names) if complete is None else set(complete)
        lengths: list[int] = []
        parts: list[tuple[Array, Array, Array]] = []
        for place, name in enumerate(names):
            if name not in self._row_of:
                self._row_of[name] = self._free.pop()
                fresh.add(name)
            if name not in fresh:
                lengths.append(-1)
                continue
            count = int(counts[place])
            start = max(self._seen.get(name, 0) if complete is None else 0, count - self.window)
            lengths.append(count)
            where = np.arange(start, count) % self.window
            parts.append((np.full(len(where), self._row_of[name]), where, tokens[place, start:count]))
            self._seen[name] = self._bound[name] = count
        self._upload([self._row_of[name] for name in names], lengths, parts)

    def append(self, sampled: torch.Tensor, counts: torch.Tensor, totals: torch.Tensor) -> None:
        """Add this step's accepted tokens, and count what was accepted of the last drafts.

        sampled: [B, S] ids, the first counts[b] of a row are accepted. counts: [B].
        totals: one row of Counters.device.
        """
        assert self._known is not None
        arguments = (self.tokens, self.lengths, self.drafted, self.slots, self._known, sampled, counts, totals)
        if runs_on(self.device):
            _append_kernel[(sampled.shape[0],)](
                *arguments, sampled.stride(0), sampled.shape[1], self.window,
                WIDTH=triton.next_power_of_2(sampled.shape[1]), FIRST=counters.ACCEPTED_DRAFTS, num_warps=1,
            )  # fmt: skip
        else:
            append_reference(*arguments)
        for name in self._bound:
            self._bound[name] += sampled.shape[1]
        self.longest = max(self._bound.values(), default=0)

    def _drop(self, names: set[str]) -> None:
        for name in self._row_of.keys() - names:
            self._free.append(self._row_of.pop(name))
            self._seen.pop(name, None)
            self._bound.pop(name, None)

    def _upload(self, rows: list[int], lengths: list[int], parts: list[tuple[Array, Array, Array]]) -> None:
        """Send everything in one copy: rows, lengths (-1: keep the device's), and three arrays of new tokens."""
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else []
        host = torch.from_numpy(np.concatenate([rows, lengths, *columns]).astype(np.int32))
        if self.device.type == "cuda":
            host = host.pin_memory()
        data = host.to(self.device, non_blocking=True)
        batch = len(rows)
        self.slots, self._known = data[:batch], data[batch : 2 * batch]
        if data.shape[0] > 2 * batch:
            row, place, value = data[2 * batch :].view(3, -1).unbind(0)
            self.tokens.index_put_((row.long(), place.long()), value)
        self.longest = max(self._bound.values(), default=0)


def append_reference(
    tokens: torch.Tensor, lengths: torch.Tensor, drafted: torch.Tensor, slots: torch.Tensor, known: torch.Tensor,
    sampled: torch.Tensor, counts: torch.Tensor, totals: torch.Tensor,
) -> None:  # fmt: skip
    """Do what Context.append says, in plain PyTorch. known: [B] int32, lengths to start from, -1 for the device's."""
    rows, window = slots.long(), tokens.shape[1]
    counts = counts.to(torch.int64)
    start = torch.where(known < 0, lengths[rows], known).to(torch.int64)
    for place in range(sampled.shape[0]):
        count = int(counts[place])
        where = (start[place] + torch.arange(count, device=tokens.device)) % window
        tokens[rows[place], where] = sampled[place, :count].to(torch.int32)
    lengths[rows] = (start + counts).to(torch.int32)
    accepted = (counts - 1).clamp(min=0)
    drafter, drafts = drafted[rows].long().unbind(1)
    mine = torch.minimum(accepted, drafter)
    copied = torch.minimum(accepted, drafts) - mine
    filler = torch.where(drafts > 0, accepted - mine - copied, 0)
    first = counters.ACCEPTED_DRAFTS
    totals[first : first + 3] += torch.stack([mine.sum(), copied.sum(), filler.sum()])
    drafted[rows] = 0


@triton.jit
def _append_kernel(
    tokens, lengths, drafted, slots, known, sampled, counts, totals, stride, width, window,
    WIDTH: tl.constexpr, FIRST: tl.constexpr,
):  # fmt: skip
    """Program (b) is `append_reference` for one request."""
    place = tl.program_id(0)
    row = tl.load(slots + place).to(tl.int64)
    given = tl.load(known + place)
    start = tl.where(given < 0, tl.load(lengths + row), given)
    count = tl.load(counts + place).to(tl.int32)
    lane = tl.arange(0, WIDTH)
    there = (lane < count) & (lane < width)
    token = tl.load(sampled + place * stride + lane, mask=there, other=0)
    tl.store(tokens + row * window + (start + lane) % window, token.to(tl.int32), mask=there)
    tl.store(lengths + row, start + count)
    accepted = tl.maximum(count - 1, 0)
    drafter = tl.load(drafted + row * 2)
    drafts = tl.load(drafted + row * 2 + 1)
    mine = tl.minimum(accepted, drafter)
    copied = tl.minimum(accepted, drafts) - mine
    tl.atomic_add(totals + FIRST, mine.to(tl.int64))
    tl.atomic_add(totals + FIRST + 1, copied.to(tl.int64))
    tl.atomic_add(totals + FIRST + 2, tl.where(drafts > 0, accepted - mine - copied, 0).to(tl.int64))
    tl.store(drafted + row * 2, 0)
    tl.store(drafted + row * 2 + 1, 0)
