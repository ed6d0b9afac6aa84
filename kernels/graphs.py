"""Which row counts have FULL decode graphs on the V2 runner, and captures them.

vLLM captures decode graphs for K + 1 rows a request alone. A batch that verifies fewer
drafts would fall to PIECEWISE graphs, which costs more than the rows it saves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import guard, live, settings
from .live import FEATURE

# Drafts a request; beyond, and between, K itself serves.
COUNTS = (0, 1, 2, 3, 4, 6, 8, 12)


def counts(config: Any) -> tuple[int, ...]:
    """Return the row counts that decode graphs are captured for, in drafts a request, ascending."""
    most = config.num_speculative_tokens
    if live.constant_rows(config):
        return (most,)
    return (*(count for count in COUNTS if count < most), most)


def row_counts(config: Any) -> Callable[[int], tuple[int, ...]]:
    """Return what says the row counts to choose from for a batch size: those with a decode graph, all where none has.

    The configuration is looked at once, since every step asks.
    """
    compilation = config.compilation_config
    mode = compilation.cudagraph_mode
    options = counts(config)
    if not mode or mode.decode_mode().name != "FULL":
        every = options if len(options) == 1 else tuple(range(config.num_speculative_tokens + 1))
        return lambda _batch: every
    largest = compilation.max_cudagraph_capture_size or 0
    return lambda batch: tuple(count for count in options if batch * (1 + count) <= largest) or options


def _engaged(manager: Any) -> bool:
    """Whether a manager's decode graphs are for drafts and the row to be sampled, on a live engine."""
    config = manager.vllm_config
    return (
        settings.current().dynamic_draft
        and FEATURE not in guard.broken
        and config.use_v2_model_runner
        and manager.decode_query_len == 1 + config.num_speculative_tokens > 1
        and not manager.varlen_decode
        and not live.refusal(config)
    )


def widths(manager: Any, decode_query_lens: list[int]) -> list[int]:
    """Return the rows a request to capture decode graphs for (CudaGraphManager._init_candidates)."""
    try:
        if _engaged(manager):
            return [1 + count for count in counts(manager.vllm_config)]
    except Exception:
        guard.fail(FEATURE)
    return decode_query_lens


def order(manager: Any) -> None:
    """Thin the graphs out, and let a batch find the next larger one of its own width.

    Called at the end of CudaGraphManager._init_candidates, whose lists hold for each
    number of tokens only the graphs of the next captured number, of whatever width.
    """
    try:
        if _engaged(manager) and not live.constant_rows(manager.vllm_config):
            _order(manager)
    except Exception:
        guard.fail(FEATURE)


def _order(manager: Any) -> None:
    by_mode = manager._capture_descs
    for mode, descs in by_mode.items():
        by_mode[mode] = _thinned(descs, manager.decode_query_len)
    candidates: dict[tuple[int, int], list[Any]] = {}
    full_first = sorted(by_mode, key=lambda mode: mode.name != "FULL")
    for mode in full_first:
        groups: dict[tuple[Any, int], list[Any]] = {}
        for desc in by_mode[mode]:
            groups.setdefault((desc.uniform_token_count, desc.num_active_loras), []).append(desc)
        for (_, loras), descs in groups.items():
            first = 0
            for desc in sorted(descs, key=lambda desc: desc.num_tokens):
                for tokens in range(first, desc.num_tokens + 1):
                    candidates.setdefault((tokens, loras), []).append(desc)
                first = desc.num_tokens + 1
    manager._candidates = candidates


def _thinned(descs: list[Any], widest: int) -> list[Any]:
    """Return the graphs worth their capture, in their order; LoRA, which multiplies them, is refused (live.py).

    All of one row and of the widest, as vLLM has them; of a width between, for every batch
    size with three significant bits the smallest graph that holds it.
    """
    kept = {desc for desc in descs if desc.uniform_token_count in (None, 1, widest)}
    for width in {desc.uniform_token_count for desc in descs} - {None, 1, widest}:
        mine = sorted((desc for desc in descs if desc.uniform_token_count == width), key=lambda desc: desc.num_reqs)
        for size in range(1, mine[-1].num_reqs + 1):
            if size % (1 << max(size.bit_length() - 3, 0)) == 0:
                kept.add(next(desc for desc in mine if desc.num_reqs >= size))
    return [desc for desc in descs if desc in kept]
