"""Hooks for the draft controller, called by the proposer and the V1 model runner.

They do nothing yet: drafting is vLLM's own. A hook costs one call.
"""

from __future__ import annotations

from typing import Any


def prepare(runner: Any, sampled_token_ids: Any, next_token_ids: Any) -> None:
    """Take note of this step's tokens, before the drafter runs (GPUModelRunner.propose_draft_token_ids).

    sampled_token_ids: [B, 1 + K] int32 with -1 for rejected, or ragged lists without padding.
    next_token_ids: [B], the token each request is drafted from.
    """


def begin(proposer: Any, num_speculative_tokens: int) -> None:
    """Start one proposal of at most `num_speculative_tokens` drafts a request (SpecDecodeBaseProposer.propose)."""


def sample(proposer: Any, hidden_states: Any) -> Any:
    """Pick the drafts of one slot: [B] int64, or None to let vLLM pick (SpecDecodeBaseProposer._greedy_sample).

    hidden_states: [B, H].
    """
    return None


def stopped(proposer: Any) -> bool:
    """Whether nobody needs another draft forward; asked before each (SpecDecodeBaseProposer.propose)."""
    return False


def finish(runner: Any, draft_token_ids: Any) -> Any:
    """Return the drafts to verify, [B, K] or ragged lists (GPUModelRunner.propose_draft_token_ids)."""
    return draft_token_ids
