"""Serve prompts with tensor parallelism, and take down what every rank drafted.

Runs under the engine's Python, from a patched overlay: ``ranks.py JOB RESULT``. The JOB has the
fields of tests/real/engine.py's ``Job``, "model" and "ranks"; tests/e2e/test_ranks.py asserts on the RESULT.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from serve import start, token_ids  # type: ignore[import-not-found]  # beside this script
from vllm import SamplingParams
from vllm._radiance import draft, guard


def watch(worker: Any) -> None:
    """Take down on a rank, for every proposal, the draft forwards and the drafts that its runner was given."""
    runner = worker.model_runner
    runner.seen, forwards = [], [0]
    forward, propose = runner.drafter.model.forward, runner.propose_draft_token_ids

    def counted(*args: Any, **kwargs: Any) -> Any:
        forwards[0] += 1
        return forward(*args, **kwargs)

    def proposed(*args: Any, **kwargs: Any) -> Any:
        before = forwards[0]
        drafts = propose(*args, **kwargs)
        runner.seen.append((forwards[0] - before, drafts if isinstance(drafts, list) else drafts.tolist()))
        return drafts

    runner.drafter.model.forward, runner.propose_draft_token_ids = counted, proposed


def told(worker: Any) -> dict[str, Any]:
    """Return what was taken down on a rank, and what its controller, if any, counted."""
    drafter = worker.model_runner.drafter
    ranks, controller = getattr(drafter, draft.RANKS), getattr(drafter, draft.NAME, None)
    return {
        "seen": worker.model_runner.seen,
        "controller": controller.counters.total() if controller else None,
        "local": ranks.head is not None,
        "broken": sorted(guard.broken),
    }


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Return the tokens by prompt, and by rank what `told` does."""
    llm = start(job, tensor_parallel_size=job["ranks"])
    executor = llm.llm_engine.engine_core.engine_core.model_executor
    executor.collective_rpc(watch)
    given = [{"prompt_token_ids": token_ids(llm, prompt)} for prompt in job["prompts"]]
    sampling = SamplingParams(temperature=0.0, max_tokens=job["max_tokens"], ignore_eos=True)
    outputs = llm.generate(given, sampling, use_tqdm=False)
    return {
        "tokens": [list(output.outputs[0].token_ids) for output in outputs],
        "ranks": executor.collective_rpc(told),
    }


if __name__ == "__main__":
    result = main(json.loads(Path(sys.argv[1]).read_text()))
    Path(sys.argv[2]).write_text(json.dumps(result))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
