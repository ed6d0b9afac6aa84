"""What happens once, when an engine starts: the settings are checked, and a line says what is live."""

from __future__ import annotations

import logging
import os
from typing import Any

from . import settings, width

# A child of vLLM's logger, so that its handlers and level apply.
logger = logging.getLogger("vllm.radiance")


def check() -> None:
    """Stop a start with wrong settings, before any process or weight is loaded (EngineArgs.create_engine_config).

    Raises SettingsError with one line that names the variable, the value and the form expected.
    """
    settings.read(os.environ)
    for line in settings.complaints(os.environ):
        logger.warning(line)


def report(vllm_config: Any) -> None:
    """Log one line that says what is live in this engine, or why it is not (EngineCore.__init__)."""
    logger.info("radiance-patch: %s", describe(vllm_config))


def describe(vllm_config: Any) -> str:
    """Say what is live for a configuration, in one line."""
    if vllm_config.speculative_config is None:
        return "nothing is live: the engine does not speculate"
    return f"{_width(vllm_config)}; {_draft(vllm_config)}"


def _draft(vllm_config: Any) -> str:
    if not settings.current().dynamic_draft:
        return "draft controller is off (RADIANCE_DYNAMIC_DRAFT is 0)"
    if vllm_config.use_v2_model_runner:
        return "draft controller is not live: it drives the V1 model runner, and this engine runs V2"
    return "draft controller: the worker's line says"


def _width(vllm_config: Any) -> str:
    now = settings.current()
    if not now.dynamic_width:
        return "dynamic verify width is off (RADIANCE_DYNAMIC_WIDTH is 0)"
    drafts = vllm_config.num_speculative_tokens
    values = f"alpha {now.alpha:g}, margin {now.margin}, floor {now.floor}, from {now.min_batch} running requests on"
    if width.captured_widths(vllm_config, now.min_batch, drafts) is None:
        return f"dynamic verify width is live ({values})"
    largest = vllm_config.compilation_config.max_cudagraph_capture_size
    beyond = f"from {largest // (1 + drafts) + 1} running requests on" if largest else "nowhere"
    return (
        f"dynamic verify width is on ({values}) but caps {beyond}: below, decode runs in FULL CUDA graphs "
        f"that exist for {drafts} drafts alone; cudagraph_mode PIECEWISE frees it"
    )
