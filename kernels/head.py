"""The worker's side of the short draft head: made when the draft model is loaded, asked at each draft step.

Called by the hunks v2_short_*.
"""

from __future__ import annotations

import logging
from typing import Any

import torch

from . import guard, shortlist
from .shortlist import FEATURE
from .speculator import depth_of

logger = logging.getLogger("vllm.radiance")


@guard.safe(FEATURE, lambda *_: None)
def shorten(speculator: Any) -> None:
    """Make the draft model's short head (load_model, before memory is profiled), and say so or why not."""
    depth = depth_of(speculator)
    if depth is None:
        return
    short, reason = depth.shortlist, shortlist.refusal(depth.config)
    if short is not None:
        reason = short.attach(speculator.model)
    if short is None or reason:
        logger.info("radiance-patch: the drafter chooses from all tokens: %s", reason)
        return
    logger.info(
        "radiance-patch: the drafter chooses from %d of %d tokens, learnt from the text (%d MiB)",
        short.ids.shape[0], short.seen.shape[0], short.bytes >> 20,
    )  # fmt: skip


@guard.safe(FEATURE, lambda *_: None)
def short_tokens(speculator: Any, hidden_states: torch.Tensor) -> torch.Tensor | None:
    """Return a draft step's tokens [B] int64 by the short head (sample_draft); None leaves them to vLLM.

    hidden_states: [B, H].
    """
    depth = depth_of(speculator)
    return None if depth is None or depth.short is None else depth.short.tokens(speculator.model, hidden_states)
