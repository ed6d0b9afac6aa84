"""Measures one engine on a GPU and appends a JSON line: ``python -m tests.bench.gpu_engine --model DIR --k 4 ...``.

Closed loop: c requests are always in flight, and the clock stops when the last one has
been handed out and one of the c ends, so that no thinning batch is measured.
``--table FILE`` prints the lines of a file as the table of RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.real.prompts import PROMPTS, mixed

# Tokens of the requests in turn. Of one length, requests that gain a token a step end in step, and their prompts
# share few prefills: without speculation 12 steps of 774 had one, with it 136 of 544 (RESULTS.md). Lengths that all
# share a factor fall back into step.
LENGTHS = (128, 83, 171, 109, 147, 97, 161)
REQUESTS = {1: 16, 5: 40, 8: 64, 32: 192}
SPEC = "vllm:spec_decode_num_"


def start(options: argparse.Namespace) -> Any:
    """Start the engine."""
    from vllm import LLM  # noqa: PLC0415  # --table needs no vLLM

    speculative = {"method": "mtp", "num_speculative_tokens": options.k, **json.loads(options.speculative)}
    return LLM(
        model=options.model,
        max_model_len=2048,
        max_num_seqs=max(options.c),
        # Several engines share the card, one measured at a time: none may size itself by what is free.
        gpu_memory_utilization=0.1,
        kv_cache_memory_bytes=3 << 30,
        max_num_batched_tokens=4096,
        disable_log_stats=False,
        cudagraph_metrics=True,
        enable_prefix_caching=False,
        speculative_config=speculative if options.k else None,
        **json.loads(options.engine),
    )


def closed_loop(engine: Any, prompts: list[list[int]], sampling: Callable[[int], Any], c: int) -> dict[str, Any]:
    """Keep c requests in flight until all prompts are handed out: tokens, seconds, and the outputs by prompt.

    sampling: returns a request's parameters, given its tokens.
    """
    waiting = list(enumerate(prompts))
    outputs: dict[str, list[int]] = {}
    began: dict[str, float] = {}
    kinds: dict[str, list[float]] = {kind: [0, 0.0] for kind in PROMPTS}
    begun = time.perf_counter()

    def submit() -> None:
        number, ids = waiting.pop(0)
        began[str(number)] = time.perf_counter()
        engine.add_request(str(number), {"prompt_token_ids": ids}, sampling(LENGTHS[number % len(LENGTHS)]))

    for _ in range(min(c, len(waiting))):
        submit()
    measured = None
    while engine.has_unfinished_requests():
        for output in engine.step():
            outputs[output.request_id] = list(output.outputs[0].token_ids)
            if output.finished:
                kind = kinds[list(PROMPTS)[int(output.request_id) % len(PROMPTS)]]
                kind[0] += len(outputs[output.request_id])
                kind[1] += time.perf_counter() - began[output.request_id]
            if output.finished and waiting:
                submit()
            elif output.finished and measured is None:
                measured = sum(map(len, outputs.values())), time.perf_counter() - begun
    assert measured is not None
    return {
        "tokens": measured[0],
        "seconds": measured[1],
        "outputs": [outputs[str(n)] for n in range(len(prompts))],
        "kinds": {kind: tokens / seconds for kind, (tokens, seconds) in kinds.items() if seconds},
    }


def count_modes() -> Counter[str]:
    """Return a counter of steps by CUDA graph mode, which vLLM's statistics add to from now on."""
    from vllm.compilation.cuda_graph import CUDAGraphLogging  # noqa: PLC0415

    modes: Counter[str] = Counter()
    CUDAGraphLogging.observe = lambda _self, stat: modes.update([str(stat.runtime_mode).rpartition(".")[2]])
    return modes


def hold(folder: Path, label: str) -> None:
    """Say that this engine is ready, and wait for its turn."""
    (folder / f"{label}.ready").touch()
    while not (folder / f"{label}.go").exists():
        time.sleep(0.1)


def counts(llm: Any) -> dict[str, float]:
    """Return vLLM's speculation counters."""
    return {m.name[len(SPEC) :]: m.value for m in llm.get_metrics() if m.name.startswith(SPEC) and hasattr(m, "value")}


def sampled(temperature: float, tokens: int) -> Any:
    """Return the parameters of a request for so many tokens."""
    from vllm import SamplingParams  # noqa: PLC0415

    return SamplingParams(temperature=temperature, max_tokens=tokens, ignore_eos=True)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure every cell of one engine."""
    llm = start(options)
    modes = count_modes()
    tokenizer = llm.get_tokenizer()
    turns = [[{"role": "user", "content": prompt}] for prompt in mixed()]
    texts = [tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=False) for turn in turns]
    ids = [list(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    engine = llm.llm_engine

    def warm(_tokens: int) -> Any:
        return sampled(0.5, 64)

    def warm_up() -> None:
        for c in options.c:
            closed_loop(engine, (ids * 3)[: 2 * c], warm, c)

    warm_up()
    if options.hold:
        hold(options.hold, options.label)
        # Once more, alone: what was learnt while other engines started is no measure of this card.
        warm_up()
    cells = {}
    for temperature in (0.0, 0.8):
        for c in options.c:
            before = counts(llm)
            modes.clear()
            prompts = (ids * 8)[: max(round(REQUESTS[c] * options.share), 2 * c)]
            run = closed_loop(engine, prompts, partial(sampled, temperature), c)
            after = counts(llm)
            spent = {name: after[name] - before.get(name, 0) for name in after}
            cells[f"c={c} T={temperature:g}"] = {
                **run,
                "counts": spent,
                "rate": run["tokens"] / run["seconds"],
                "modes": dict(modes),
            }
            if temperature:
                cells[f"c={c} T={temperature:g}"]["outputs"] = []
    engine.do_log_stats()
    return {"label": options.label, "cells": cells}


def same(first: list[list[int]], other: list[list[int]]) -> str:
    """Say how many greedy texts agree of those both have, and where the others part."""
    both = list(zip(first, other, strict=False))
    parted = [
        next((place for place, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
        for one, two in both
        if one != two
    ]
    return f"{len(both) - len(parted)} of {len(both)}" + (f", parted at {sorted(parted)}" if parted else "")


def full_share(cell: dict[str, Any]) -> str:
    """Return the share of steps in FULL graphs."""
    steps = sum(cell["modes"].values())
    return f"{100 * cell['modes'].get('FULL', 0) / steps:.0f} %" if steps else "?"


def table(path: Path) -> None:
    """Print the lines of a file side by side: tokens/s, graph modes, accepted drafts, greedy texts, kinds of text."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    names = list(lines[0]["cells"])
    print("| engine | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 1) + "|")
    for line in lines:
        rates = [f"{line['cells'][name]['rate']:.0f}" for name in names]
        print(f"| {line['label']} | " + " | ".join(rates) + " |")
    print("\nsteps in FULL graphs, and verified drafts and accepted ones a step, at c=8 T=0; greedy text as the first")
    for line in lines:
        cell = line["cells"].get("c=8 T=0") or line["cells"][names[0]]
        seen = cell["counts"]
        rows, took = (seen.get(name, 0) / max(seen.get("drafts", 0), 1) for name in ("draft_tokens", "accepted_tokens"))
        greedy = [name for name in names if name.endswith("T=0")]
        shares = ", ".join(f"{name.split()[0]} {full_share(line['cells'][name])}" for name in greedy)
        texts = same(lines[0]["cells"][names[0]]["outputs"], line["cells"][names[0]]["outputs"])
        print(f"  {line['label']}: {shares}; {rows:.2f} verified, {took:.2f} accepted; texts {texts}")
    print(f"\n| {names[0]} | " + " | ".join(PROMPTS) + " |\n" + "|---" * (len(PROMPTS) + 1) + "|")
    for line in lines:
        kinds = line["cells"][names[0]]["kinds"]
        print(f"| {line['label']} | " + " | ".join(f"{kinds.get(kind, 0):.0f}" for kind in PROMPTS) + " |")
    print(f"\n{LENGTHS} tokens the requests in turn, requests {REQUESTS}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--label", default="")
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--c", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--speculative", default="{}", help="more speculative_config, JSON")
    parser.add_argument("--engine", default="{}", help="more LLM arguments, JSON")
    parser.add_argument("--out", type=Path, default=Path("gpu_engine.jsonl"))
    parser.add_argument("--hold", type=Path, help="folder in which to wait for one's turn, see gpu_table.py")
    parser.add_argument("--share", type=float, default=1.0, help="of the requests of each cell; less is quicker")
    parser.add_argument("--table", type=Path)
    given = parser.parse_args()
    if given.table:
        table(given.table)
    else:
        result = measure(given)
        with given.out.open("a") as file:
            file.write(json.dumps(result) + "\n")
        rates = "  ".join(f"{name}: {cell['rate']:.0f}" for name, cell in result["cells"].items())
        print(f"== {given.label}: {rates}", flush=True)
        os._exit(0)  # the engine's processes need no orderly end, and device time is short
