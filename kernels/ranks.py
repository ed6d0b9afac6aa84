"""Drafting under tensor parallelism: the first rank decides for all.

In every slot the ranks exchange the numbers of their vocabulary shards (shards.py), and
the first rank answers all of them with the tokens and whether to go on. What another
rank would have decided is never asked, so that neither a last bit, nor a setting, nor a
fault of ours can make the ranks launch different forwards, which would leave them
waiting for each other for ever.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from . import guard, shards, top1

logger = logging.getLogger("vllm.radiance")

FEATURE = "shard-local drafting"

# From a slot's tokens [B] int64 and probabilities [B] float32 to [1], 1 where another forward is wanted.
Rule = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def share(tensor: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Give every rank the first rank's values, in place."""
    whole = tensor.contiguous()
    dist.broadcast(whole, src=dist.get_global_rank(group, 0), group=group)
    if whole is not tensor:
        tensor.copy_(whole)


def group_of(parallel: Any, device: torch.device) -> dist.ProcessGroup | None:
    """Return the tensor parallel group of vLLM's ParallelConfig; None where a rank is alone.

    Asked by all ranks before vLLM measures its memory: a group's buffers are made when it is first used.
    """
    if parallel.tensor_parallel_size == 1:
        return None
    group: dist.ProcessGroup = sys.modules["vllm.distributed.parallel_state"].get_tp_group().device_group
    share(torch.zeros(1, device=device), group)
    return group


class Ranks:
    """One rank's side. All ranks make the same calls in the same order, whatever has failed on one of them.

    leads: this is the rank that decides. head: None once the logits are gathered, then by
    every rank and for good. width: drafts of the proposal under way.
    """

    def __init__(self, model: Any, group: dist.ProcessGroup, device: torch.device) -> None:
        self.leads = dist.get_rank(group) == 0
        self.width = 0
        self.head: shards.Head | None = None
        self._model, self._group, self._device = model, group, device
        self.size = dist.get_world_size(group)
        self._scratch = top1.Scratch(device)
        on_gpu = device.type == "cuda"
        self._event = torch.cuda.Event() if on_gpu else None
        # The last answer's going and, 0 where a shard was not reduced, the head's state.
        self._said = torch.ones(2, dtype=torch.int64, pin_memory=on_gpu)
        try:
            self.head = shards.Head(model, self.size)
        except ValueError as error:
            logger.info("radiance-patch: draft logits are gathered: %s", error)

    def slot(self, hidden: torch.Tensor, rule: Rule) -> torch.Tensor:
        """Take a slot's hidden states [B, H]; returns its tokens [B] int64, the same on every rank.

        rule: asked on the first rank alone. A shard that cannot be reduced costs this slot its
        tokens, and from the next slot on all ranks gather.
        """
        self._heed()
        rows = hidden.shape[0]
        found = self._gathered(hidden) if self.head is None else self._exchanged(hidden)
        answer = torch.ones(rows + 2, dtype=torch.int64, device=self._device)
        if self.leads:
            try:
                self._answer(answer, found, rule)
            except Exception:
                guard.fail(FEATURE)
                answer[-1] = 0
        share(answer, self._group)
        self._said.copy_(answer[rows:], non_blocking=True)
        if self._event is not None:
            self._event.record()
        return answer[:rows]

    def stopped(self) -> bool:
        """Whether the first rank wants no further forward; waits for the slot's answer."""
        if self._event is not None:
            self._event.synchronize()
        return not int(self._said[0])

    def share(self, drafts: torch.Tensor) -> torch.Tensor:
        """Return the first rank's drafts [B, K], written over this rank's."""
        share(drafts, self._group)
        return drafts

    def _heed(self) -> None:
        """Gather from here on where the last answer said so: it is the same answer on every rank."""
        if self.head is None:
            return
        if self._event is not None:
            self._event.synchronize()
        if not int(self._said[1]):
            self.head = None
            if FEATURE not in guard.broken:
                logger.warning("radiance-patch: %s failed on another rank; all gather from now on", FEATURE)

    def _exchanged(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the numbers of all ranks, [P, B, 4] int32."""
        try:
            assert self.head is not None
            mine = shards.reduce(*self.head.logits(hidden))
        except Exception:
            guard.fail(FEATURE)
            mine = shards.unreduced(hidden.shape[0], self._device)
        return shards.exchange(mine, self._group)

    def _gathered(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits [B, V], gathered by vLLM, on the first rank at least."""
        logits: torch.Tensor = self._model.compute_logits(hidden)
        return logits

    def _answer(self, answer: torch.Tensor, found: torch.Tensor, rule: Rule) -> None:
        """Write the slot's answer, [B + 2]: its tokens, whether to go on, and whether every shard was reduced."""
        if self.head is None:
            token, probability = top1.top1(found, self._scratch)
        else:
            token, probability = shards.finish(found)
            answer[-1:] = found[..., shards.REDUCED].amin()
        answer[:-2] = token
        answer[-2:-1] = rule(token, probability)
