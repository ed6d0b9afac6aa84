"""A draft head whose vocabulary is split over ranks, reduced where it lies.

Each rank reduces its shard to three numbers a row, which travel in place of the logits;
their bits travel as integers, ids among them, so that nothing is rounded on the way.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.distributed as dist

from . import top1
from .backend import runs_on

# Columns of what travels, each 32 bits: the maximum, the sum of exponentials below it, the token, 1 if it was reduced.
LARGEST, TOTAL, TOKEN, REDUCED = range(4)

# On draft models that map the head's columns to other tokens (Eagle 3), or ban some by their place (Gemma 4).
OWN_VOCABULARY = ("draft_id_to_target_id", "_suppress_idx")


def reduce(logits: torch.Tensor, first: int) -> torch.Tensor:
    """Reduce a shard to what travels, [B, 4] int32.

    logits: [B, C] of any float type, none of them padding; C may be 0. first: the token of its first column.
    """
    rows, columns = logits.shape
    if not columns:
        return _packed(logits.new_full((rows,), float("-inf")), logits.new_zeros(rows), logits.new_zeros(rows))
    if runs_on(logits.device):
        largest, total, token = (part.T for part in top1.partial(logits))
        largest, total, token = top1.join(largest, total, token.long())
    else:
        largest, total, token = top1.partial_reference(logits)
    # A NaN equals nothing, and leaves a token one past the shard.
    return _packed(largest, total, token.clamp(max=columns - 1) + first)


def _packed(largest: torch.Tensor, total: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    bits = [part.float().view(torch.int32) for part in (largest, total)]
    return torch.stack([*bits, token.int(), torch.ones_like(token, dtype=torch.int32)], dim=1)


def unreduced(rows: int, device: torch.device) -> torch.Tensor:
    """Return what travels of a shard that could not be reduced: nothing in it wins, and its rank says so."""
    numbers = reduce(torch.empty(rows, 0, device=device), 0)
    numbers[:, REDUCED] = 0
    return numbers


def exchange(mine: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Return every rank's numbers, [P, B, 4] int32 by rank, from this one's, [B, 4]."""
    numbers = mine.new_empty(dist.get_world_size(group), *mine.shape)
    dist.all_gather_into_tensor(numbers.flatten(0, 1), mine, group=group)
    return numbers


def finish(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Finish from all ranks' numbers, [P, B, 4] int32 by rank: token [B] int64 and probability [B] float32."""
    largest, total = (numbers[..., column].view(torch.float32) for column in (LARGEST, TOTAL))
    return top1.finish(largest, total, numbers[..., TOKEN].long())


class Head:
    """A draft model's head, asked for this rank's columns alone. Raises ValueError for one that cannot be.

    Only `compute_logits` knows what a model does before its head, so it is called as it
    stands, while its logits processor answers without gathering.
    """

    def __init__(self, model: Any, ranks: int) -> None:
        self._model = model
        self._ranks = ranks
        self._processor = processor_of(model)
        if any(hasattr(part, name) for part in model.modules() for name in OWN_VOCABULARY):
            raise ValueError(f"{type(model).__name__} numbers or bans tokens after its head")

    def logits(self, hidden: torch.Tensor) -> tuple[torch.Tensor, int]:
        """Return this rank's logits [B, C], capped and scaled, without padding, and the token of their first column.

        Raises ValueError where the head is not what this was written for.
        """
        processor, seen = self._processor, []

        def forward(lm_head: Any, hidden_states: torch.Tensor, embedding_bias: torch.Tensor | None = None) -> Any:
            logits = type(processor).forward(processor, lm_head, hidden_states, embedding_bias, skip_gather=True)
            seen.append((lm_head, logits))
            return logits

        processor.forward = forward
        try:
            found = self._model.compute_logits(hidden)
        finally:
            del processor.forward
        if len(seen) != 1 or found is not seen[0][1]:
            raise ValueError("the model changes its logits after the logits processor")
        lm_head, logits = seen[0]
        columns = columns_of(lm_head, processor.org_vocab_size, self._ranks)
        return logits[:, : len(columns)], columns.start


def processor_of(model: Any) -> Any:
    """Return a model's one logits processor. Raises ValueError where it cannot be asked for a shard."""
    named = [part for part in model.modules() if any(kind.__name__ == "LogitsProcessor" for kind in type(part).__mro__)]
    if len(named) != 1:
        raise ValueError(f"the draft model has {len(named)} logits processors")
    (processor,) = named
    if "skip_gather" not in inspect.signature(type(processor).forward).parameters:
        raise ValueError("this vLLM's logits processor always gathers")
    if processor.logits_as_input or "forward" in vars(processor):
        raise ValueError("the draft model's logits processor is not vLLM's own")
    return processor


def columns_of(lm_head: Any, vocab: int, ranks: int) -> range:
    """Return the tokens of a head's columns on this rank; the columns behind them are padding.

    vocab: the tokens that the gathered path keeps. Raises ValueError where the columns are not split so.
    """
    shard = lm_head.shard_indices
    if lm_head.tp_size != ranks or shard.num_added_elements_padded:
        raise ValueError("the draft model's head is not split over the ranks alone")
    return range(shard.org_vocab_start_index, max(min(shard.org_vocab_end_index, vocab), shard.org_vocab_start_index))
