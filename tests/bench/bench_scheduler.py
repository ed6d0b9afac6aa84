"""What planning and learning cost the host: ``python -m tests.bench.bench_scheduler``.

vLLM's own async scheduler replays the recorded traces, patched; prints the microseconds of a
decoding step that are vLLM's, and those of each hook, side by side in the same steps.
"""

from __future__ import annotations

import datetime
import json
import os
import statistics

from tests.bench import bench_patcher, record
from tests.bench.simulate import H200
from tests.real import cache, engine

BATCHES = (1, 8, 32)
ROUNDS, STEPS = 3, 800
PARTS = ("vllm", "plan", "ship", "learn")


def measure(built: engine.Engine, steps: int, rounds: int) -> dict[str, list[float]]:
    """Return the mean microseconds of a step by batch size, for every part, in the round that was quickest for vLLM."""
    costs = {batch: (cost.step, cost.row, cost.forward) for batch, cost in H200.items()}
    job = {"model": str(built.model), "batches": BATCHES, "steps": steps, "costs": costs, "texts": record.load(0.0)}
    means: dict[str, list[list[float]]] = {str(batch): [] for batch in BATCHES}
    with engine.patched_overlay(built) as site:
        for number in range(rounds):
            cache.say(f"scheduler, round {number + 1} of {rounds}")
            found = json.loads(engine.run_inside(built, "replay.py", job, site=site, env={}))
            for batch, timed in found.items():
                means[batch].append([statistics.mean(step[part] for step in timed) for part in PARTS])
    return {batch: min(found) for batch, found in means.items()}


def report(costs: dict[str, list[float]]) -> str:
    """Say what each part of a step costs, and the hooks as a share of vLLM's own."""
    rows = [("requests, us a step", *PARTS, "hooks", "of vllm")]
    for batch, parts in costs.items():
        hooks = sum(parts[1:])
        rows.append((batch, *(f"{part:.0f}" for part in [*parts, hooks]), f"{hooks / parts[0]:.2f}"))
    return bench_patcher.table(rows)


def main() -> None:
    """Measure and print."""
    costs = measure(engine.get(), STEPS, ROUNDS)
    print(
        f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, {bench_patcher.cpu_model()}, "
        f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}\n"
        f"means of {STEPS} steps, of the round that was quickest for vLLM, of {ROUNDS}\n\n{report(costs)}"
    )


if __name__ == "__main__":
    main()
