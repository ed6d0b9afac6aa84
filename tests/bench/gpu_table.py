"""Measure several engines on one GPU, started side by side and measured one at a time.

``python -m tests.bench.gpu_table --model DIR --columns k0 k2 ours --out FILE`` appends a line a
column and prints the table; a start takes a minute or two, so as many as fit run at once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench import gpu_engine

STOCK = {"RADIANCE_DYNAMIC_DRAFT": "0"}
V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
V1_OURS = V1 | {"RADIANCE_DYNAMIC_DRAFT": "1"}
SYNC = {"async_scheduling": False}
# On two GPUs; the model needs heads that go by two (widen.py --hidden 4224 --kv-heads 22).
PAIR = {"tensor_parallel_size": 2}
SCHEDULE = [[1, 4, 4], [5, 16, 3], [17, 32, 2]]


def column(k: int, env: dict[str, str] | None = None, **speculative: Any) -> dict[str, Any]:
    """Return what a column is measured with."""
    return {"k": k, "env": STOCK if env is None else env, "speculative": speculative}


COLUMNS: dict[str, dict[str, Any]] = {
    **{f"k{k}": column(k) for k in (0, 1, 2, 3, 4, 6, 8)},
    "schedule": column(4, num_speculative_tokens_per_batch_size=SCHEDULE),
    "adaptive": column(6, enable_adaptive_verification=True),
    # Nothing set, as installed.
    "ours": column(8, {}),
    # A smaller draft head, and the whole one.
    "ours-10k": column(8, {"RADIANCE_DRAFT_VOCAB": "10240"}),
    "ours-whole": column(8, {"RADIANCE_DRAFT_VOCAB": "0"}),
    # The drafter's layers as vLLM runs them.
    "ours-plain": column(8, {"RADIANCE_DRAFT_FUSED": "0"}),
    "k2-fp8": column(2, draft_lm_head_quantization="fp8"),
    "ours-fp8": column(8, {}, draft_lm_head_quantization="fp8"),
    **{f"v1-k{k}": column(k, STOCK | V1) for k in (0, 2, 4, 8)},
    "v1-ours": column(8, V1_OURS),
    **{f"pair-k{k}": column(k) | {"engine": PAIR} for k in (0, 2, 4, 8)},
    "pair-ours": column(8, {"RADIANCE_DYNAMIC_DRAFT": "1"}) | {"engine": PAIR},
    **{f"pair-v1-k{k}": column(k, STOCK | V1) | {"engine": PAIR} for k in (2, 4, 8)},
    "pair-v1-ours": column(8, V1_OURS) | {"engine": PAIR},
    "v1-sync-k2": column(2, STOCK | V1) | {"engine": SYNC},
    "v1-sync-ours": column(8, V1_OURS) | {"engine": SYNC},
    "v1-sync-width": column(8, V1_OURS | {"RADIANCE_DYNAMIC_WIDTH": "1"}) | {"engine": SYNC},
}


def launch(name: str, options: argparse.Namespace, hold: Path) -> subprocess.Popen[bytes]:
    """Start a column's engine."""
    what = COLUMNS[name]
    engine = json.dumps(json.loads(options.engine) | what.get("engine", {}))
    command = [
        sys.executable, "-m", "tests.bench.gpu_engine", "--model", options.model, "--label", name,
        "--k", str(what["k"]), "--c", *map(str, options.c), "--speculative", json.dumps(what["speculative"]),
        "--engine", engine, "--share", str(options.share),
        "--hold", str(hold), "--out", str(options.out),
    ]  # fmt: skip
    with (options.logs / f"log_{name}.txt").open("wb") as log:
        return subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **what["env"]},
        )


def measure(names: list[str], options: argparse.Namespace) -> None:
    """Start the engines of these columns together, then let each have the card to itself."""
    with tempfile.TemporaryDirectory() as folder:
        hold = Path(folder)
        engines = {}
        for name in names:
            engines[name] = launch(name, options, hold)
            # Loading is bound by the disk; one after the other is no slower.
            time.sleep(options.stagger)
        waiting, until = set(names), time.monotonic() + options.patience
        while waiting and time.monotonic() < until:
            time.sleep(0.2)
            done = {name for name in waiting if engines[name].poll() is not None}
            waiting -= done | {name for name in waiting if (hold / f"{name}.ready").exists()}
        for name in waiting:
            print(f"-- {name}: not ready after {options.patience:.0f} s", flush=True)
            engines.pop(name).kill()
        while options.gate and not options.gate.exists():
            time.sleep(0.2)
        for name, engine in engines.items():
            began = time.monotonic()
            (hold / f"{name}.go").touch()
            engine.wait()
            print(f"-- {name}: exit {engine.returncode}, {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    alone = [name for name in COLUMNS if not name.startswith("pair-")]
    parser.add_argument("--columns", nargs="+", choices=COLUMNS, default=alone)
    parser.add_argument("--c", type=int, nargs="+", default=[1, 5, 8, 32])
    parser.add_argument("--share", type=float, default=1.0, help="of the requests of each cell")
    parser.add_argument("--together", type=int, default=5, help="engines on the card at once")
    parser.add_argument("--stagger", type=float, default=2.0, help="seconds between two starts")
    parser.add_argument("--engine", default="{}", help="more LLM arguments, JSON")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds an engine may take to start")
    parser.add_argument("--gate", type=Path, help="file to wait for before anything is measured")
    parser.add_argument("--out", type=Path, default=Path("gpu_table.jsonl"))
    parser.add_argument("--logs", type=Path, default=Path())
    options = parser.parse_args()
    for first in range(0, len(options.columns), options.together):
        measure(options.columns[first : first + options.together], options)
        # Engine processes outlive their parents by a moment, and hold the memory the next ones need.
        subprocess.run(["pkill", "-9", "VLLM"], check=False)
        time.sleep(4)
    gpu_engine.table(options.out)


if __name__ == "__main__":
    main()
