"""What happens once, when an engine starts: the settings are checked, and a line says what is live."""

from __future__ import annotations

import logging
import os
from typing import Any

from . import graphs, live, settings, width

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
    """Log one line that says what is live in this engine, or why it is not (EngineCore.__init__).

    Raises SettingsError when a switch that the environment sets to 1 cannot be honoured.
    """
    logger.info("radiance-patch: %s", describe(vllm_config))
    now = settings.current()
    if vllm_config.speculative_config is None or not vllm_config.use_v2_model_runner:
        return
    reason = live.refusal(vllm_config)
    switches = {"RADIANCE_DYNAMIC_DRAFT": now.dynamic_draft, "RADIANCE_DYNAMIC_WIDTH": now.dynamic_width}
    asked = [name for name, on in switches.items() if on and name in now.given]
    if reason and asked:
        raise settings.SettingsError(
            f"radiance-patch: {asked[0]}=1 cannot be honoured on the V2 runner: {reason}; unset it to start without"
        )


def describe(vllm_config: Any) -> str:
    """Say what is live for a configuration, in one line."""
    if vllm_config.speculative_config is None:
        return "nothing is live: the engine does not speculate"
    return f"{_width(vllm_config)}; {_draft(vllm_config)}"


def _draft(vllm_config: Any) -> str:
    now = settings.current()
    if not now.dynamic_draft:
        return "draft depth is off (RADIANCE_DYNAMIC_DRAFT is 0)"
    if not vllm_config.use_v2_model_runner:
        return "draft depth on the V1 runner: the worker's line says"
    reason = live.refusal(vllm_config)
    if reason:
        return f"draft depth is not live on the V2 runner: {reason}"
    counts = ", ".join(map(str, graphs.counts(vllm_config)))
    cap = "set" if "RADIANCE_DRAFT_SCHEDULE" in now.given else "none"
    return (
        f"draft depth is live on the V2 runner (up to {vllm_config.num_speculative_tokens} drafts, "
        f"rows with FULL graphs: {counts}; verbatim tails; schedule: {cap})"
    )


def _width(vllm_config: Any) -> str:
    now = settings.current()
    if vllm_config.use_v2_model_runner and not live.refusal(vllm_config):
        return "verify width follows the draft depth"
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
