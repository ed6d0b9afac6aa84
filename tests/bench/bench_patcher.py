"""What apply and status cost on a real vLLM tree, and what a hook costs that is switched off.

``python -m tests.bench.bench_patcher`` prints CPU time (user + system) and peak memory of the
child processes, with a warm file cache, beside two baselines: a Python that imports what the
tool imports, and one that hashes the files the patch touches.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from packaging.version import Version

from radiance_patch import __version__, registry
from tests.real import cache, engine
from tests.real.releases import Release, copy_tree

RELEASE = Release("vllm", "0.33.0")
ROUNDS = 5
ROOT = Path(__file__).parents[2]
SCRIPT = Path(sys.executable).with_name("radiance-patch")

# CPU seconds and MB that the project allows itself.
BARS = {"apply": (5.0, 400.0), "status": (0.5, 400.0)}
HOOK_BAR_NS = 1000.0

IMPORTS = "import ast, click, csv, difflib, email.parser, importlib.resources, json, packaging.version, subprocess"
HASHES = "import hashlib, sys; [hashlib.sha256(open(name, 'rb').read()).digest() for name in sys.argv[1:]]"

# Run in a child, since settings are read once a process, and under the engine's Python, since hooks need torch.
HOOKS = """
import json, sys, timeit
from kernels import draft, width
def empty(one, two): pass
class Owner: pass
owner = Owner()
owner.drafter, owner.num_spec_tokens = owner, 4
number = int(sys.argv[1])
calls = {
    "an empty function": (empty, "o, o"),
    "draft.note": (draft.note, "o, o, o, o"), "draft.prepare": (draft.prepare, "o, o"),
    "draft.begin": (draft.begin, "o, 4, 1"), "draft.sample": (draft.sample, "o, o"),
    "draft.stopped": (draft.stopped, "o"), "draft.finish": (draft.finish, "o, o"),
    "width.observe": (width.observe, "o, o, o, 2"), "width.cap_batch": (width.cap_batch, "o, o"),
}
print(json.dumps({
    name: 1e9 / number * min(timeit.repeat(f"f({arguments})", globals={"f": f, "o": owner}, number=number, repeat=7))
    for name, (f, arguments) in calls.items()
}))
"""


class Cost(NamedTuple):
    """CPU seconds and peak memory, in MB, of one process."""

    seconds: float
    megabytes: float


def measure(command: Sequence[str | Path], env: dict[str, str]) -> Cost:
    """Run a command that must succeed, and ask the kernel what it cost."""
    process = subprocess.Popen(
        [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=env
    )
    _, code, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(code)
    if process.returncode != 0:
        raise SystemExit(f"exit {process.returncode}: {' '.join(map(str, command))}")
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def median(costs: Sequence[Cost]) -> Cost:
    """Take the median of the times and the largest peak."""
    return Cost(statistics.median(cost.seconds for cost in costs), max(cost.megabytes for cost in costs))


def touched(site: Path) -> list[Path]:
    """Return the files of the tree that the patch touches."""
    return sorted({site / "vllm" / hunk.file for hunk in registry.at(registry.hunks(), Version(RELEASE.version))})


def patcher(site: Path) -> dict[str, Cost]:
    """Measure the commands and the baselines, each ROUNDS times after a round that warms the file cache."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "RADIANCE_"))}

    def tool(name: str) -> Callable[[], Cost]:
        return lambda: measure([SCRIPT, name, "--target", site], env)

    steps = {
        "python, imports": lambda: measure([sys.executable, "-c", IMPORTS], env),
        "python, sha256": lambda: measure([sys.executable, "-c", HASHES, *touched(site)], env),
        "apply": tool("apply"),
        "apply again": tool("apply"),
        "status": tool("status"),
        "revert": tool("revert"),
    }
    rounds: dict[str, list[Cost]] = {name: [] for name in steps}
    for number in range(ROUNDS + 1):
        cache.say(f"round {number} of {ROUNDS}" if number else "warming up")
        for name, step in steps.items():
            cost = step()
            if number:
                rounds[name].append(cost)
    return {name: median(costs) for name, costs in rounds.items()}


def hooks(calls: int = 200_000) -> dict[str, float]:
    """Measure each hook with its feature off, in nanoseconds a call."""
    cache.say("hooks")
    env = {**os.environ, "RADIANCE_DYNAMIC_WIDTH": "0", "RADIANCE_DYNAMIC_DRAFT": "0"}
    return dict(json.loads(subprocess.check_output([engine.get().python, "-c", HOOKS, str(calls)], env=env, cwd=ROOT)))


def cpu_model() -> str:
    """Name the processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def table(rows: Sequence[Sequence[str]]) -> str:
    """Align rows; the first column to the left, the others to the right."""
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [f"{text:>{width}}" for text, width in zip(others, wide[1:], strict=True)]
        lines.append("  ".join([f"{first:<{wide[0]}}", *cells]).rstrip())
    return "\n".join(lines)


def report_patcher(costs: dict[str, Cost]) -> str:
    """Say what the commands cost, as multiples of the baselines and of the bars."""
    imports, hashes = costs["python, imports"].seconds, costs["python, sha256"].seconds
    rows = [("command", "CPU s", "x imports", "x sha256", "bar s", "of bar", "peak MB", "bar MB")]
    for name, cost in costs.items():
        seconds, megabytes = BARS.get(name, (None, None))
        bars = (f"{seconds:g}", f"{cost.seconds / seconds:.2f}") if seconds else ("", "")
        rows.append(
            (
                name,
                f"{cost.seconds:.3f}",
                f"{cost.seconds / imports:.1f}",
                f"{cost.seconds / hashes:.1f}",
                *bars,
                f"{cost.megabytes:.0f}",
                f"{megabytes:g}" if megabytes else "",
            )
        )
    return table(rows)


def report_hooks(costs: dict[str, float]) -> str:
    """Say what the hooks cost beside a call of an empty function and the bar."""
    (_, empty), *_ = costs.items()
    rows = [("hook, switched off", "ns a call", "x empty", "of bar")]
    rows += [(name, f"{ns:.0f}", f"{ns / empty:.1f}", f"{ns / HOOK_BAR_NS:.2f}") for name, ns in costs.items()]
    return table(rows)


def main() -> None:
    """Measure and print."""
    with cache.scratch("bench") as folder:
        costs = patcher(copy_tree(RELEASE, folder / "site-packages"))
    hook_costs = hooks()
    load = os.getloadavg()[0]
    print(
        f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, {cpu_model()}, {os.cpu_count()} CPUs, "
        f"load {load:.1f}\nradiance-patch {__version__}, Python {platform.python_version()}, {RELEASE}, "
        f"median of {ROUNDS}, largest peak\n\n{report_patcher(costs)}\n\n{report_hooks(hook_costs)}"
    )


if __name__ == "__main__":
    main()
