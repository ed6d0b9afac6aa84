"""A draft head of fewer tokens: those of the running requests first, then the most common ones.

Reading the whole output head is more than half of a draft forward (tests/bench/RESULTS.md),
and almost all tokens of a text are among a fifth of a large vocabulary. The drafter chooses
from these; what it can no longer propose the target still says, since the target's head
stays whole. (FR-Spec, arXiv 2502.14856, fixes such a list beforehand.)
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from . import settings

logger = logging.getLogger("vllm.radiance")

# Tokens of a request that are looked at: of longer ones the recent part.
WINDOW = 2048
# Steps between two looks, and between two when requests have come since.
EVERY, SOON = 256, 32
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
        self._requests: frozenset[str] = frozenset()
        self._came = False

    def attach(self, model: nn.Module) -> str | None:
        """Make the short heads of a draft model; returns why not, and then leaves no trace."""
        found = list(_heads(model))
        if not found:
            return "the draft model has no output head that is known"
        for owner, name, whole in found:
            if type(whole.quant_method).__name__ not in PLAIN:
                return "the output head is quantized"
            if whole.weight.dim() != 2 or whole.weight.shape[0] < self.seen.shape[0]:
                return "the output head is not of the whole vocabulary"
            # Shared heads stay shared.
            short = next((head for *_, other, head in self._heads if other is whole), None)
            self._heads.append((owner, name, whole, short or Head(whole, self.ids.shape[0])))
        self._fill()
        reason = None if self._proved(model) else "the draft model uses its output head in another way"
        if reason:
            self._heads.clear()
        return reason

    @property
    def bytes(self) -> int:
        """Device memory of the short heads."""
        return sum({id(head): head.weight.nbytes for *_, head in self._heads}.values())

    def tokens(self, model: Any, hidden_states: torch.Tensor) -> torch.Tensor:
        """Return the tokens [B] int64 that the short head finds most likely after hidden states [B, H]."""
        return self.ids[self._logits(model, hidden_states).argmax(dim=-1)]

    def follow(self, names: Sequence[str], context: torch.Tensor, slots: torch.Tensor, lengths: torch.Tensor) -> bool:
        """Look at the running requests' tokens, if it is time to; returns whether the list was made anew.

        names: [B], the requests. context: [R, T] int32, the tokens of all. slots: [B], the
        requests' rows. lengths: [R], tokens of each row. Nothing here waits for the device.
        """
        running = frozenset(names)
        self._came |= not running <= self._requests
        self._requests = running
        self._since += 1
        if self._since < (SOON if self._came else EVERY):
            return False
        self._since, self._came = 0, False
        rows = slots.long()
        place = lengths[rows].long()[:, None] - self._window
        tokens = context[rows[:, None], place.clamp(0, context.shape[1] - 1)].long()
        self.seen.mul_(KEPT)
        # A placeholder of something that is no text may lie outside of the vocabulary.
        there = (place >= 0) & (tokens >= 0) & (tokens < self.seen.shape[0])
        self.seen.scatter_add_(0, tokens.clamp(0, self.seen.shape[0] - 1).flatten(), there.float().flatten())
        self.ids.copy_(torch.topk(self.seen + self._prior, self.ids.shape[0], sorted=False).indices)
        self._fill()
        return True

    def _fill(self) -> None:
        with torch.no_grad():
            for head, whole in {id(head): (head, whole) for *_, whole, head in self._heads}.values():
                torch.index_select(whole.weight, 0, self.ids, out=head.weight)

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
    def _proved(self, model: Any) -> bool:
        """Whether the short heads give the whole one's numbers at their tokens."""
        width = self._heads[0][2].weight.shape[1]
        generator = torch.Generator().manual_seed(0)
        hidden = torch.randn(2, width, generator=generator).to(self._heads[0][2].weight)
        try:
            whole, short = model.compute_logits(hidden), self._logits(model, hidden)
        except Exception:
            logger.debug("radiance-patch: the output head's proof", exc_info=True)
            return False
        if short.shape != (2, self.ids.shape[0]) or whole.shape[1] < self.seen.shape[0]:
            return False
        wanted = whole[:, self.ids].float()
        return bool(torch.allclose(short.float(), wanted, rtol=TOLERANCE, atol=TOLERANCE * float(wanted.abs().max())))


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
    return Shortlist(config.model_config.get_vocab_size(), settings.current().draft_vocabulary, device)
