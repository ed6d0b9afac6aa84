"""Counts the draft controller's copies to the host on a GPU: ``python -m tests.bench.gpu_copies --model DIR``.

Serves on the V1 runner, in process, under torch.profiler, and attributes every device-to-host
copy and every wait for the device to the controller's hook that made it. Exits 1 where a draft slot takes more
than one copy or wait, one that the schedule has already ended takes any, or another hook does.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PREFIX = "radiance-patch: "
# What one call of each hook may take: copies to the host, and waits.
MOST = {
    "note": (0, 0),
    "begin": (0, 0),
    "slot": (1, 0),
    "slot at the cap": (0, 0),
    "asking": (0, 1),
    "asking at the cap": (0, 0),
    "finish, tensor": (0, 0),
    "finish, lists": (1, 1),
}
WAITS = ("cudaEventSynchronize", "cudaStreamSynchronize", "cudaDeviceSynchronize")
Event = dict[str, Any]


def calls(trace: Sequence[Event]) -> list[tuple[str, int, int]]:
    """Return for each call of a hook in a profiler's trace its name, its copies to the host, and its waits."""
    copies = {
        event["args"]["correlation"] for event in trace if event.get("cat") == "gpu_memcpy" and "DtoH" in event["name"]
    }
    runtime = [event for event in trace if event.get("cat") in ("cuda_runtime", "cuda_driver")]
    found = []
    for hook in trace:
        if hook.get("cat") == "user_annotation" and hook["name"].startswith(PREFIX):
            mine = [event for event in runtime if _within(event, hook)]
            copied = sum(event["args"].get("correlation") in copies for event in mine)
            found.append((hook["name"][len(PREFIX) :], copied, sum(event["name"] in WAITS for event in mine)))
    return found


def _within(event: Event, hook: Event) -> bool:
    return bool(event["tid"] == hook["tid"] and hook["ts"] <= event["ts"] < hook["ts"] + hook["dur"])


def faults(found: Sequence[tuple[str, int, int]]) -> list[str]:
    """Return a line for each call that took more than MOST allows."""
    return [
        f"{name}: {copied} copies, {waited} waits"
        for name, copied, waited in found
        if copied > MOST[name][0] or waited > MOST[name][1]
    ]


def annotate(draft: Any) -> None:
    """Name the controller's calls in the profiler's trace."""
    from torch.profiler import record_function  # noqa: PLC0415

    def wrap(owner: Any, method: str, name: Callable[[Any], str]) -> None:
        inner = getattr(owner, method)

        def named(self: Any, *args: Any, **kwargs: Any) -> Any:
            with record_function(PREFIX + name(self)):
                return inner(self, *args, **kwargs)

        setattr(owner, method, named)

    wrap(draft.Controller, "note", lambda _: "note")
    wrap(draft.Proposal, "__init__", lambda _: "begin")
    wrap(draft.Proposal, "take", lambda self: "slot at the cap" if self.slot + 1 >= self.forwards else "slot")
    wrap(draft.Proposal, "done", lambda self: "asking at the cap" if self.slot >= self.forwards else "asking")
    wrap(draft.Controller, "finish", lambda self: "finish, tensor" if self.asynchronous else "finish, lists")


def profile(options: argparse.Namespace) -> list[tuple[str, int, int]]:
    """Serve one request, then as many as meet the schedule's lowest cap, and return what each call took."""
    import torch  # noqa: PLC0415
    from vllm import LLM, SamplingParams  # noqa: PLC0415
    from vllm._radiance import draft  # noqa: PLC0415

    llm = LLM(
        model=options.model,
        max_model_len=2048,
        max_num_seqs=16,
        speculative_config={"method": "mtp", "num_speculative_tokens": options.k},
        **json.loads(options.engine),
    )
    prompts = [{"prompt_token_ids": [*range(100 + 40 * n, 140 + 40 * n)]} for n in range(16)]
    sampling = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
    llm.generate(prompts, sampling, use_tqdm=False)  # compiles the kernels
    annotate(draft)
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profiler:
        llm.generate(prompts[:1], sampling, use_tqdm=False)
        llm.generate(prompts, sampling, use_tqdm=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return calls(json.loads(path.read_text())["traceEvents"])


def main(options: argparse.Namespace) -> int:
    """Print the counts by hook and return the exit code."""
    found = profile(options)
    times = Counter(name for name, _, _ in found)
    for name in MOST:
        copied = sum(copies for hook, copies, _ in found if hook == name)
        waited = sum(waits for hook, _, waits in found if hook == name)
        print(f"{name:<20} {times[name]:>6} calls {copied:>6} copies to the host {waited:>6} waits")
    lines = faults(found)
    if not times["slot"] or not times["slot at the cap"]:
        lines.append("no slot, or none at the cap, was seen: is the controller live?")
    if not any(copies for _, copies, _ in found):
        lines.append("no copy was seen at all: the profiler sees no GPU")
    print("\n".join(lines) or "one copy a slot at most, none where the schedule had ended drafting")
    return 1 if lines else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--engine", default="{}", help="more LLM arguments, JSON")
    given = parser.parse_args()
    # Read when vLLM is imported: one process, whose objects can be reached, on the runner that the controller drives.
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_USE_V2_MODEL_RUNNER="0",
        RADIANCE_DYNAMIC_DRAFT="1",
        RADIANCE_DRAFT_TAU="0",  # as deep as the schedule lets it, which is what is looked at
    )
    code = main(given)
    sys.stdout.flush()
    os._exit(code)  # the engine needs no orderly end, and device time is short
