"""Drive vLLM's own schedulers and graph manager as on the V2 runner: ``plan.py JOB RESULT`` (tests/e2e/test_plan.py).

The CPU build has no V2 runner to run, but its configuration, schedulers and
``CudaGraphManager`` are the ones that CUDA engines use.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from scheduler import DRAFTS, Driver, answer, configure  # type: ignore[import-not-found]  # beside this script
from vllm.config import CUDAGraphMode, VllmConfig
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import RequestStatus
from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager

STEPS = 120
SIZES = [1, 2, 4, *range(8, 257, 8), *range(272, 513, 16)]


def planned(config: VllmConfig, *, asynchronous: bool, right: dict[str, int]) -> dict[str, Any]:
    """Return what each step scheduled, and the plan it carried, for requests that accept so many drafts."""
    driver = Driver(config, asynchronous=asynchronous)
    requests = [driver.add(name, max_tokens=300) for name in right]
    steps, plans = [], []
    schedule = driver.scheduler.schedule

    def watched(*args: Any, **kwargs: Any) -> Any:
        output = schedule(*args, **kwargs)
        plan = getattr(output, "_radiance_plan", None)
        plans.append(None if plan is None else [plan.forwards, plan.drafted])
        return output

    driver.scheduler.schedule = watched
    for _ in range(STEPS):
        if not driver.scheduler.requests:
            break
        steps.append(driver.step(right))
    return {"steps": steps, "plans": plans, "tokens": [len(request.output_token_ids) for request in requests]}


def aborted(config: VllmConfig) -> dict[str, Any]:
    """Return how many steps were planned before and after a request was aborted that a step in flight still holds.

    The answer to that step leaves it out, as vLLM's scheduler allows.
    """
    driver = Driver(config, asynchronous=True)
    driver.add("good")
    driver.add("ended")
    take, planned = driver.scheduler.update_from_output, [0, 0]

    def without(output: Any, found: ModelRunnerOutput) -> Any:
        planned["ended" not in driver.scheduler.requests] += hasattr(output, "_radiance_plan")
        names = [name for name in found.req_ids if name in driver.scheduler.requests]
        sampled = [found.sampled_token_ids[found.req_id_to_index[name]] for name in names]
        return take(output, answer(names, sampled))

    driver.scheduler.update_from_output = without
    for step in range(20):
        if step == 10:
            driver.scheduler.finish_requests("ended", RequestStatus.FINISHED_ABORTED)
        driver.step({"good": DRAFTS, "ended": 1})
    return {"planned": planned}


def candidates(config: VllmConfig, mode: CUDAGraphMode) -> dict[str, Any]:
    """Return for every batch size and row count the graph that serves it: mode, width, tokens; None for none."""
    compilation = config.compilation_config
    compilation.cudagraph_mode, compilation.cudagraph_capture_sizes = mode, SIZES
    compilation.max_cudagraph_capture_size = SIZES[-1]
    # Its constructor asks for a distributed group and a graph pool; the lists need neither.
    manager = CudaGraphManager.__new__(CudaGraphManager)
    manager.vllm_config, manager.compilation_config = config, compilation
    manager.max_num_reqs, manager.cudagraph_mode = 256, mode
    manager.decode_query_len, manager.varlen_decode = 1 + DRAFTS, False
    manager.ubatch_runner, manager.lora_capture_cases = None, [0]
    manager._lora_dispatch_map, manager._graphs_captured = {}, True
    manager._candidates, manager._capture_descs = {}, {}
    manager._init_candidates()
    found: dict[str, Any] = {}
    for batch in (1, 2, 3, 5, 7, 8, 9, 13, 24, 33, 50, 100, 200):
        for rows in range(1 + DRAFTS):
            desc = manager.dispatch(batch, batch * (1 + rows), 1 + rows, 0)
            found[f"{batch}x{rows}"] = [desc.cg_mode.name, desc.uniform_token_count, desc.num_tokens]
    captured = [desc for descs in manager._capture_descs.values() for desc in descs]
    return {"found": found, "full": sum(desc.cg_mode.name == "FULL" for desc in captured), "all": len(captured)}


def main(given: Path, result: Path) -> None:
    """Run every scenario."""
    config = configure(json.loads(given.read_text())["model"])
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1"
    assert config.use_v2_model_runner
    both = {"good": DRAFTS, "bad": 0}
    facts = {
        "sync": planned(config, asynchronous=False, right=both),
        "async": planned(config, asynchronous=True, right=both),
        "never": planned(config, asynchronous=True, right={"bad": 0, "worse": 0}),
        "aborted": aborted(config),
        "graphs": candidates(config, CUDAGraphMode.FULL_AND_PIECEWISE),
    }
    result.write_text(json.dumps(facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)
