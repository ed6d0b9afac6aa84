"""Drive vLLM's own schedulers, patched, without a model, and write what they did: ``scheduler.py JOB RESULT``.

Runs under the engine's Python. The JOB file is {"model": FOLDER}; the RESULT file holds, by
scenario, what tests/e2e/test_scheduler.py asserts on.
"""

import gc
import json
import sys
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from vllm import SamplingParams
from vllm.config import CUDAGraphMode, VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

DRAFTS = 8
BLOCK = 32
BLOCKS = 512
PROMPT = list(range(100, 120))
TOKEN = 500
AVERAGE = "_radiance_accepted"


def configure(model: str) -> VllmConfig:
    """Return the configuration of an engine that drafts DRAFTS tokens with the model's MTP layer."""
    config = EngineArgs(
        model=model,
        dtype="float32",
        max_model_len=1024,
        max_num_seqs=8,
        block_size=BLOCK,
        enforce_eager=True,
        enable_prefix_caching=False,
        speculative_config={"method": "mtp", "num_speculative_tokens": DRAFTS},
    ).create_engine_config()
    config.cache_config.num_gpu_blocks = BLOCKS
    return config


def answer(names: Sequence[str], sampled: Sequence[list[int]]) -> ModelRunnerOutput:
    """Return what a runner answers: the tokens of each of these requests."""
    return ModelRunnerOutput(list(names), {name: at for at, name in enumerate(names)}, list(sampled))


class Driver:
    """A scheduler and, in the place of the model, answers that accept as many drafts as the caller says.

    ``ahead`` steps are scheduled before the first of them is answered, as the engine core does
    under async scheduling.
    """

    def __init__(self, config: VllmConfig, *, asynchronous: bool) -> None:
        self.ahead = 1 if asynchronous else 0
        # The CPU platform forces it off in the configuration (vllm/platforms/cpu.py).
        config.scheduler_config.async_scheduling = asynchronous
        self.grammars = StructuredOutputManager(config)
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
        self.scheduler = (AsyncScheduler if asynchronous else Scheduler)(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(BLOCKS, [], [KVCacheGroupSpec(["layer"], spec)]),
            structured_output_manager=self.grammars,
            block_size=BLOCK,
            log_stats=True,
        )
        self.flying: deque[SchedulerOutput] = deque()
        self.drafts: dict[str, list[int]] = {}
        self.sampled: dict[str, int] = {}

    def add(
        self, name: str, *, max_tokens: int = 400, regex: str | None = None, prompt: Sequence[int] = PROMPT
    ) -> Request:
        """Queue a request; with ``regex`` its output must match that."""
        sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        if regex is not None:
            sampling.structured_outputs = StructuredOutputsParams(regex=regex)
            sampling.structured_outputs._backend = "xgrammar"
        sampling.update_from_generation_config({}, eos_token_id=2)
        request = Request(name, list(prompt), sampling, None)
        if regex is not None:
            self.grammars.grammar_init(request)
            while not request.structured_output_request.grammar:
                pass
        self.scheduler.add_request(request)
        return request

    def step(self, accepted: Mapping[str, int]) -> dict[str, int]:
        """Schedule once, answer what is due, and return the number of drafts scheduled for each request."""
        output = self.scheduler.schedule()
        if self.ahead and self.drafts:
            # What the engine core does for grammars, once the drafts of the last step are known.
            self.scheduler.update_draft_token_ids_in_output(self._drafted(self.drafts), output)
        self.flying.append(output)
        while len(self.flying) > self.ahead:
            self._answer(self.flying.popleft(), accepted)
        return {name: len(output.scheduled_spec_decode_tokens.get(name, ())) for name in output.num_scheduled_tokens}

    def _answer(self, output: SchedulerOutput, accepted: Mapping[str, int]) -> None:
        names = list(output.num_scheduled_tokens)
        sampled = []
        for name in names:
            drafts = output.scheduled_spec_decode_tokens.get(name, [])
            kept = [max(token, 0) or TOKEN for token in drafts[: accepted.get(name, 0)]]
            sampled.append([*kept, self.sampled.get(name, TOKEN)])
        self.scheduler.update_from_output(output, answer(names, sampled))
        if not self.ahead:
            self.scheduler.update_draft_token_ids(
                self._drafted({name: self.drafts.get(name, [TOKEN] * DRAFTS) for name in names})
            )

    @staticmethod
    def _drafted(drafts: Mapping[str, Sequence[int]]) -> DraftTokenIds:
        return DraftTokenIds(list(drafts), [list(tokens) for tokens in drafts.values()])


def averages(*requests: Request) -> list[float | None]:
    """Return each request's average, None before there is one."""
    return [getattr(request, AVERAGE, None) for request in requests]


def two_widths(config: VllmConfig, *, asynchronous: bool) -> dict[str, Any]:
    """One request accepts everything and one nothing; both start cold."""
    driver = Driver(config, asynchronous=asynchronous)
    good, bad = driver.add("good"), driver.add("bad")
    scheduled, shared = [], []
    for _ in range(14):
        scheduled.append(driver.step({"good": DRAFTS}))
        shared.append(list(getattr(driver.scheduler, "_spec_token_placeholders", [])))
    return {"scheduled": scheduled, "shared": shared, "averages": averages(good, bad)}


def finished(config: VllmConfig, *, asynchronous: bool) -> dict[str, Any]:
    """A request ends; one of the same name comes after it."""
    driver = Driver(config, asynchronous=asynchronous)
    driver.add("other")
    first = driver.add("again", max_tokens=6)
    while "again" in driver.scheduler.requests:
        driver.step({})
    average, watch = averages(first)[0], weakref.ref(first)
    del first
    for _ in range(4):
        driver.step({})
    gc.collect()
    second = driver.add("again")
    cold = averages(second)[0]
    scheduled = [driver.step({}).get("again") for _ in range(6)]
    return {"average": average, "freed": watch() is None, "cold": cold, "scheduled": scheduled}


def preempted(config: VllmConfig, *, asynchronous: bool) -> dict[str, Any]:
    """Both requests are preempted and resumed; one had accepted nothing."""
    driver = Driver(config, asynchronous=asynchronous)
    good, bad = driver.add("good"), driver.add("bad")
    for _ in range(10):
        driver.step({"good": DRAFTS})
    before = averages(good, bad)
    driver.scheduler.reset_prefix_cache(reset_running_requests=True)
    after = averages(good, bad)
    scheduled = [driver.step({"good": DRAFTS}) for _ in range(6)]
    preemptions = [good.num_preemptions, bad.num_preemptions]
    return {"before": before, "after": after, "scheduled": scheduled, "preemptions": preemptions}


def grammar(config: VllmConfig, *, asynchronous: bool) -> dict[str, Any]:
    """Two requests must write digits: of one's drafts the first two are, and are accepted; of the other's none is."""
    driver = Driver(config, asynchronous=asynchronous)
    tokenizer = driver.grammars.tokenizer
    (digit,), (letter,) = (tokenizer.encode(text, add_special_tokens=False) for text in ("7", "x"))
    driver.drafts = {
        "digits": [digit] * 2 + [letter] * (DRAFTS - 2),
        "letters": [letter] * DRAFTS,
        "free": [TOKEN] * DRAFTS,
    }
    driver.sampled = {"digits": digit, "letters": digit}
    constrained = [driver.add(name, regex="[0-9]{1,300}") for name in driver.sampled]
    free = driver.add("free")
    scheduled = [driver.step({"digits": 2}) for _ in range(12)]
    return {"scheduled": scheduled, "averages": averages(*constrained, free)}


def full_graphs(config: VllmConfig, *, asynchronous: bool) -> dict[str, Any]:
    """Decode graphs exist for the full width alone, for up to two requests."""
    compilation = config.compilation_config
    stock = compilation.cudagraph_mode, compilation.max_cudagraph_capture_size
    compilation.cudagraph_mode = CUDAGraphMode.FULL_AND_PIECEWISE
    compilation.max_cudagraph_capture_size = 2 * (1 + DRAFTS)
    try:
        driver = Driver(config, asynchronous=asynchronous)
        driver.add("good")
        driver.add("bad")
        inside = [driver.step({"good": DRAFTS}) for _ in range(10)]
        driver.add("third")
        beyond = [driver.step({"good": DRAFTS}) for _ in range(10)]
    finally:
        compilation.cudagraph_mode, compilation.max_cudagraph_capture_size = stock
    return {"inside": inside, "beyond": beyond}


SCENARIOS = (two_widths, finished, preempted, grammar, full_graphs)


def main(model: str) -> dict[str, Any]:
    """Run every scenario on both schedulers and return the facts by scheduler and scenario."""
    config = configure(model)
    return {
        kind: {run.__name__: run(config, asynchronous=kind == "async") for run in SCENARIOS}
        for kind in ("sync", "async")
    }


if __name__ == "__main__":
    facts = main(json.loads(Path(sys.argv[1]).read_text())["model"])
    Path(sys.argv[2]).write_text(json.dumps(facts))
