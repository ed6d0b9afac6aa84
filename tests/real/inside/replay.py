"""Time the hooks in vLLM's own async scheduler on recorded texts, as on the V2 runner: ``replay.py JOB RESULT``.

The JOB file holds ``model``, ``batches`` (requests in flight), ``steps`` to time after as many in
which the patch learns, ``costs`` (seconds of a step, of one row of one request and of a draft
forward, by batch) and ``texts`` (tests/bench/record.py); the RESULT file, by batch, the
microseconds of every decoding step: vLLM's own, and each hook's. No model runs: the recorded
drafts say what is accepted, and a clock of its own tells the patch how long the card would have
taken.
"""

import itertools
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from scheduler import DRAFTS, Driver, answer, configure  # type: ignore[import-not-found]  # beside this script
from vllm._radiance import steps as hooks  # where the patch is in
from vllm.config import VllmConfig
from vllm.v1.outputs import ModelRunnerOutput

HOOKS = ("plan", "ship", "learn")
VLLM = "vllm"


class Replay(Driver):  # type: ignore[misc]  # Driver is imported beside this script
    """A closed loop of recorded requests over one scheduler."""

    def __init__(self, config: VllmConfig, texts: list[dict[str, Any]], costs: tuple[float, float, float]) -> None:
        super().__init__(config, asynchronous=True)
        self.texts = itertools.cycle(texts)
        self.costs = costs
        self.clock = 0.0
        # Microseconds of the step at hand, by hook.
        self.spent: dict[str, float] = defaultdict(float)
        self.numbers = itertools.count()
        # By request: its text, and how many output tokens it has.
        self.at: dict[str, tuple[dict[str, Any], int]] = {}

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the call with its time added to what `name` spent."""

        def timed(*args: Any) -> Any:
            begun = time.perf_counter()
            result = call(*args)
            self.spent[name] += 1e6 * (time.perf_counter() - begun)
            return result

        return timed

    def submit(self) -> None:
        """Queue the next text; it ends while there are drafts recorded for it."""
        text, name = next(self.texts), str(next(self.numbers))
        self.at[name] = text, 0
        self.add(name, max_tokens=len(text["output"]) - DRAFTS - 2, prompt=text["prompt"])

    def turn(self) -> dict[str, float] | None:
        """Schedule a step and take in the one before; return what that took, None where not every request decodes."""
        self.spent.clear()
        self.flying.append(self.timed(VLLM, self.scheduler.schedule)())
        if len(self.flying) <= self.ahead:
            return None
        due = self.flying.popleft()
        self.timed(VLLM, self.scheduler.update_from_output)(due, self._read(due))
        ended = [name for name in self.at if name not in self.scheduler.requests]
        for name in ended:
            del self.at[name]
            self.submit()
        scheduled, drafts = due.num_scheduled_tokens, due.scheduled_spec_decode_tokens
        if ended or any(count != 1 + len(drafts.get(name, ())) for name, count in scheduled.items()):
            return None
        return {**self.spent, VLLM: self.spent[VLLM] - sum(self.spent[name] for name in HOOKS)}

    def _read(self, output: Any) -> ModelRunnerOutput:
        # Those that have ended meanwhile were scheduled once more, and have no answer.
        names = [name for name in output.num_scheduled_tokens if name in self.at]
        sampled, rows = [], 0
        for name in names:
            text, at = self.at[name]
            verified = len(output.scheduled_spec_decode_tokens.get(name, ()))
            truth, drafts = text["output"][at:], text["drafts"][at - 1][:verified] if at else []
            right = next((n for n, (d, t) in enumerate(zip(drafts, truth, strict=False)) if d != t), len(drafts))
            sampled.append(truth[: right + 1])
            self.at[name], rows = (text, at + right + 1), rows + verified
        if names:
            step, row, forward = self.costs
            self.clock += step + row * rows + forward * output._radiance_plan.forwards
        return answer(names, sampled)


def measure(config: VllmConfig, batch: int, job: dict[str, Any]) -> list[dict[str, float]]:
    """Return the microseconds of so many decoding steps of a batch."""
    replay = Replay(config, job["texts"], job["costs"][str(batch)])
    hooks.time = SimpleNamespace(perf_counter=lambda: replay.clock, monotonic=time.monotonic)
    stock = {name: getattr(hooks, name) for name in HOOKS}
    for name, hook in stock.items():
        setattr(hooks, name, replay.timed(name, hook))
    for _ in range(batch):
        replay.submit()
    for _ in range(job["steps"]):
        replay.turn()
    found: list[dict[str, float]] = []
    while len(found) < job["steps"]:
        step = replay.turn()
        if step is not None:
            found.append(step)
    for name, hook in stock.items():
        setattr(hooks, name, hook)
    return found


def main(given: Path, result: Path) -> None:
    """Measure every batch size."""
    job = json.loads(given.read_text())
    config = configure(job["model"])
    config.scheduler_config.max_num_seqs = max(job["batches"])
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1"
    assert config.use_v2_model_runner
    result.write_text(json.dumps({batch: measure(config, batch, job) for batch in job["batches"]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)
