"""Whether the draft depth is live on the V2 model runner, decided from the configuration alone: all processes agree."""

from __future__ import annotations

import sys
from typing import Any

from . import settings

SWITCH = "RADIANCE_DYNAMIC_DRAFT"
# What the log calls it, and guard.broken, in all processes.
FEATURE = "draft depth"
# The first release with the hooks (hunks/v2_*.py).
FIRST = (0, 29)
# Device memory for the requests' tokens, at most; vLLM keeps them in host memory, where no kernel can scan them.
MOST_CONTEXT = 2 << 30


def refusal(config: Any) -> str | None:
    """Return why an engine on the V2 runner is left to vLLM, or None. config: its VllmConfig."""
    speculative, parallel = config.speculative_config, config.parallel_config
    if speculative is None:
        return "the engine does not speculate"
    mode = config.compilation_config.cudagraph_mode
    context = 4 * config.scheduler_config.max_num_seqs * config.model_config.max_model_len
    reasons = {
        "RADIANCE_DYNAMIC_DRAFT is 0": not settings.current().dynamic_draft,
        "this vLLM is older than 0.29, the first with the hooks": _release() < FIRST,
        f"method {speculative.method} is neither MTP nor Eagle": speculative.method not in ("mtp", "eagle", "eagle3"),
        "the model has several MTP modules": speculative.use_multi_module_mtp(),
        "Gemma 4 drafts at constant positions": speculative.use_gemma4_mtp(),
        "drafting is parallel": speculative.parallel_drafting,
        # A token that the drafter did not draw has no probability to be verified against.
        "draft_sample_method is probabilistic": speculative.draft_sample_method != "greedy",
        "rejection sampling is not the standard one": speculative.rejection_sample_method != "standard",
        "vLLM's adaptive verification is on": speculative.enable_adaptive_verification,
        "vLLM's batch-size schedule is on": bool(speculative.num_speculative_tokens_per_batch_size),
        "LoRA": config.lora_config is not None,
        **parallelisms(parallel),
        "microbatching": parallel.use_ubatching,
        "watermarking": getattr(config, "watermark_config", None) is not None,
        "fast prefill shares KV": config.cache_config.kv_sharing_fast_prefill,
        "prompt embeddings have no tokens to match": config.model_config.enable_prompt_embeds,
        "CUDA graphs of mixed batches are FULL": bool(mode) and mode.mixed_mode().name == "FULL",
        f"{context >> 20} MiB of tokens would not fit beside the model": context > MOST_CONTEXT,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def asked() -> bool:
    """Whether the environment itself switches drafting on, on either runner."""
    now = settings.current()
    return now.dynamic_draft and SWITCH in now.given


def parallelisms(parallel: Any) -> dict[str, bool]:
    """Return for each parallelism that is left to vLLM, on either runner, whether it is asked for."""
    return {
        f"tensor parallel is not proved on GPUs yet, {SWITCH}=1 tries it": parallel.tensor_parallel_size > 1
        and not asked(),
        "pipeline parallel": parallel.pipeline_parallel_size > 1,
        "data parallel": parallel.data_parallel_size > 1,
        "context parallel": parallel.decode_context_parallel_size > 1 or parallel.prefill_context_parallel_size > 1,
        "expert parallel": parallel.enable_expert_parallel,
    }


def constant_rows(config: Any) -> bool:
    """Whether all K drafts must be verified in every step.

    Layers with a recurrent state find their place in it by the rows of the step before
    (gdn_attn.py): fewer rows would have to be proved on each of them.
    """
    return bool(config.model_config.is_hybrid or config.model_config.has_inner_state)


def _release() -> tuple[int, ...]:
    """Return vLLM's release; it is imported by whoever calls this."""
    version: tuple[Any, ...] = getattr(sys.modules.get("vllm"), "__version_tuple__", (0, 0))
    return tuple(part for part in version[:2] if isinstance(part, int))
