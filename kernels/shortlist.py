"""A draft head of fewer tokens: those of the running requests first, then the most common ones.

Reading the whole output head is more than half of a draft forward (tests/bench/RESULTS.md),
and almost all tokens of a text are among a fifth of a large vocabulary. The drafter chooses
from these; what it can no longer propose the target still says, since the target's head
stays whole. (FR-Spec, arXiv 2502.14856, fixes such a list beforehand.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from . import settings

# What the log calls it, and guard.broken.
FEATURE = "short draft head"
# Tokens of a request that are looked at: of longer ones the recent part. Requests looked at at once: the memory for it
# is not there when vLLM measures what is left.
WINDOW, MOST_REQUESTS = 2048, 128
# Steps between two looks, which take half a millisecond. Weights that were updated, or are back from sleep, are not
# drafted with for as long.
EVERY = 48
# What is left of a token's count after a look.
KEPT = 0.99
# Of tokens never seen the lower ids come first: byte pair encodings number their merges by how common they are.
PRIOR = 1e-3
# Heads whose rows are plain numbers.
PLAIN = ("UnquantizedEmbeddingMethod", "UnquantizedLinearMethod")
# What the models call a module that holds the head, and how far two ways to multiply may be apart.
HEADS = ("lm_head", "head")
TOLERANCE = 0.02


class Head(nn.Module):
    """Some rows of an output head, in the form that vLLM's LogitsProcessor takes; weight: [N, H]."""

    def __init__(self, whole: Any, size: int) -> None:
        super().__init__()
        self.quant_method = whole.quant_method
        self.tp_size = 1
        self.weight = nn.Parameter(torch.empty_like(whole.weight[:size]), requires_grad=False)


class Shortlist:
    """The tokens of the draft head.

    ids: [N] int64, in the order of the head's rows. seen: [V] float32, how often each token
    of the vocabulary was seen, fading. Both change between steps, at fixed addresses: the
    draft graphs read them.
    """

    def __init__(self, vocabulary: int, size: int, device: torch.device) -> None:
        self.ids = torch.arange(size, dtype=torch.int64, device=device)
        self.seen = torch.zeros(vocabulary, dtype=torch.float32, device=device)
        self._prior = torch.linspace(PRIOR, 0.0, vocabulary, device=device)
        self._window = torch.arange(1, WINDOW + 1, device=device)
        self._heads: list[tuple[Any, str, Any, Head]] = []
        self._since = EVERY
        self._looks = 0

    def attach(self, model: nn.Module) -> str | None:
        """Make the short heads of a draft model; returns why not, and then leaves no trace."""
        self._heads.clear()
        reason = self._attached(model)
        if reason:
            self._heads.clear()
        return reason

    def _attached(self, model: nn.Module) -> str | None:
        for owner, name, whole in _heads(model):
            if type(whole.quant_method).__name__ not in PLAIN:
                return f"the output head is quantized ({type(whole.quant_method).__name__})"
            if whole.weight.dim() != 2 or whole.weight.shape[0] < self.seen.shape[0]:
                return "the output head is not of the whole vocabulary"
            _, short = self._pairs.get(id(whole)) or (whole, Head(whole, self.ids.shape[0]))
            self._heads.append((owner, name, whole, short))
        if not self._heads:
            return "the draft model has no output head that is known"
        first = self.ids.clone()
        # Tried with tokens from all over the vocabulary: the first ones would hide what is done by a token's place.
        shuffled = torch.randperm(self.seen.shape[0], generator=torch.Generator().manual_seed(0))
        self._list(shuffled[: first.shape[0]].to(first.device))
        reason: str | None = self._disproved(model)
        self._list(first)
        return reason

    @property
    def attached(self) -> bool:
        """Whether there is a draft model to choose for."""
        return bool(self._heads)

    @property
    def bytes(self) -> int:
        """Device memory of the short heads."""
        return sum(short.weight.nbytes for _, short in self._pairs.values())

    @property
    def _pairs(self) -> dict[int, tuple[Any, Head]]:
        """Every whole head with its short one, by identity: a head that several layers share is one."""
        return {id(whole): (whole, short) for *_, whole, short in self._heads}

    def tokens(self, model: Any, hidden_states: torch.Tensor) -> torch.Tensor:
        """Return the tokens [B] int64 that the short head finds most likely after hidden states [B, H]."""
        return self.ids[self._logits(model, hidden_states).argmax(dim=-1)]

    def follow(self, context: torch.Tensor, slots: torch.Tensor, lengths: torch.Tensor) -> bool:
        """Look at the running requests' tokens, if it is time to; returns whether the list was made anew.

        context: [R, T] int32, the tokens of all. slots: [B], the requests' rows. lengths: [R],
        tokens of each row. Nothing here waits for the device.
        """
        self._since += 1
        if self._since < EVERY:
            return False
        self._since = 0
        stride = -(-slots.shape[0] // MOST_REQUESTS)
        rows = slots[self._looks % stride :: stride].long()
        self._looks += 1
        place = lengths[rows].long()[:, None] - self._window
        tokens = context[rows[:, None], place.clamp(0, context.shape[1] - 1)].long()
        self.seen.mul_(KEPT)
        # A placeholder of something that is no text may lie outside of the vocabulary.
        there = (place >= 0) & (tokens >= 0) & (tokens < self.seen.shape[0])
        self.seen.scatter_add_(0, tokens.clamp(0, self.seen.shape[0] - 1).flatten(), there.float().flatten())
        self._list(torch.topk(self.seen + self._prior, self.ids.shape[0], sorted=False).indices)
        return True

    def _list(self, ids: torch.Tensor) -> None:
        """Make this the list: rows first, so that a fault leaves rows and tokens that belong together."""
        with torch.no_grad():
            for whole, short in self._pairs.values():
                torch.index_select(whole.weight, 0, ids, out=short.weight)
        self.ids.copy_(ids)

    def _logits(self, model: Any, hidden_states: torch.Tensor) -> torch.Tensor:
        with self._in_place():
            logits: torch.Tensor = model.compute_logits(hidden_states)
        return logits

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        """Let the model multiply by the short heads; outside it has its own, which weight updates look for."""
        for owner, name, _, short in self._heads:
            owner._modules[name] = short
        try:
            yield
        finally:
            for owner, name, whole, _ in self._heads:
                owner._modules[name] = whole

    @torch.no_grad()
    def _disproved(self, model: Any) -> str | None:
        """Return why the short heads do not give the whole one's numbers at their tokens, None if they do."""
        width = self._heads[0][2].weight.shape[1]
        generator = torch.Generator().manual_seed(0)
        hidden = torch.randn(2, width, generator=generator).to(self._heads[0][2].weight)
        other_use = "the draft model uses its output head in another way"
        try:
            whole, short = model.compute_logits(hidden), self._logits(model, hidden)
        except Exception as error:
            return f"{other_use} ({type(error).__name__})"
        if short.shape != (2, self.ids.shape[0]) or whole.shape[1] < self.seen.shape[0]:
            return other_use
        wanted = whole[:, self.ids].float()
        largest = float(wanted.abs().max())
        if not 0.0 < largest < float("inf"):
            return "the output head has no weights yet"
        return None if torch.allclose(short.float(), wanted, rtol=TOLERANCE, atol=TOLERANCE * largest) else other_use


def _heads(model: nn.Module) -> Iterator[tuple[Any, str, Any]]:
    """Yield (owner, name, head) of every output head within a draft model."""
    for owner in model.modules():
        for name in HEADS:
            head = owner._modules.get(name)
            if head is not None and hasattr(head, "quant_method") and hasattr(head, "weight"):
                yield owner, name, head


def refusal(config: Any) -> str | None:
    """Return why the draft head stays whole, by the configuration alone, or None. config: a VllmConfig."""
    size, vocabulary = settings.current().draft_vocabulary, config.model_config.get_vocab_size()
    speculative = config.speculative_config
    reasons = {
        "RADIANCE_DRAFT_VOCAB is 0": size == 0,
        f"the vocabulary of {vocabulary} is less than twice RADIANCE_DRAFT_VOCAB": vocabulary < 2 * size,
        "the drafter reduces the vocabulary locally (use_local_argmax_reduction)": (
            speculative.use_local_argmax_reduction
        ),
        "draft_lm_head_quantization is set": getattr(speculative, "draft_lm_head_quantization", None) is not None,
        "tensor parallel": config.parallel_config.tensor_parallel_size > 1,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def of(config: Any, device: torch.device) -> Shortlist | None:
    """Return the shortlist for an engine, without a head yet; None where the head stays whole."""
    if refusal(config):
        return None
    # A multiple that matrix products like.
    size = -(-settings.current().draft_vocabulary // 64) * 64
    return Shortlist(config.model_config.get_vocab_size(), size, device)
