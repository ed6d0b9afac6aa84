"""Record acceptance traces of the real model for the depth policy: ``python -m tests.bench.record``.

One gzipped JSON file a temperature in tests/bench/traces/: a list with, for every prompt of
tests/real/prompts.py, ``prompt`` and ``output`` (token ids), and for every output token n the
``drafts`` that the drafter proposes after it (K token ids, the first is for output token
n + 1) with their top-1 probabilities, ``confidence``.
"""

import gzip
import json
from pathlib import Path
from typing import Any

from tests.real import engine
from tests.real.prompts import mixed

TRACES = Path(__file__).parent / "traces"
DEPTH = 8
TOKENS = 192
TEMPERATURES = (0.0, 0.8)


def path(temperature: float) -> Path:
    """Return where the traces of a temperature lie."""
    return TRACES / f"smollm2-mtp-T{temperature:g}.json.gz"


def load(temperature: float) -> list[dict[str, Any]]:
    """Return the recorded traces of a temperature, in the order of the prompts."""
    traces: list[dict[str, Any]] = json.loads(gzip.decompress(path(temperature).read_bytes()))
    return traces


def record(temperature: float) -> None:
    """Record and write the traces of a temperature."""
    built = engine.get()
    job = {
        "model": str(built.model),
        "prompts": mixed(),
        "num_speculative_tokens": DEPTH,
        "max_num_seqs": 8,
        "max_tokens": TOKENS,
        "temperature": temperature,
        "seed": 0,
    }
    text = engine.run_inside(built, "record.py", job, site=None, env={})
    TRACES.mkdir(exist_ok=True)
    # No time stamp, so that the same traces are the same file.
    path(temperature).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    for value in TEMPERATURES:
        record(value)
        print(path(value))
