"""Runs every kernel of the draft controller under compute-sanitizer: ``python -m tests.bench.gpu_sanitizer``.

Exits 0 only if memcheck and racecheck ran on all shapes and found nothing; 2 where there is
no compute-sanitizer to run. ``--shapes DEVICE`` is what runs under it: each kernel on a few
shapes beside its reference.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

SEARCHED = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/cuda/bin")
TOOLS = ("memcheck", "racecheck")
SECONDS = 300
ABSENT = 2


def find() -> str | None:
    """Return the path of compute-sanitizer, or None."""
    home = os.environ.get("CUDA_HOME")
    places = [os.environ.get("PATH", ""), *([f"{home}/bin"] if home else []), *SEARCHED]
    return shutil.which("compute-sanitizer", path=os.pathsep.join(places))


def check(sanitizer: str, tool: str) -> bool:
    """Run the shapes under one tool; whether they all ran and nothing was found."""
    command = [sanitizer, "--tool", tool, "--error-exitcode", "9", sys.executable, "-m", "tests.bench.gpu_sanitizer"]
    # Every tensor an allocation of its own, so that a step past its end is a step past what memcheck knows.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    try:
        done = subprocess.run(
            [*command, "--shapes", "cuda"],
            env=environment,
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        print(f"{tool}: not done after {SECONDS} s")
        return False
    ran = "every shape ran" in done.stdout
    print(f"{tool}: exit {done.returncode}, {'every shape ran' if ran else 'not every shape ran'}")
    if done.returncode or not ran:
        print((done.stdout + done.stderr)[-6000:])
    return done.returncode == 0 and ran


def main() -> int:
    """Run both tools and return the exit code."""
    sanitizer = find()
    if sanitizer is None:
        print("compute-sanitizer is absent (not in PATH, CUDA_HOME or /usr/local/cuda): nothing was checked")
        return ABSENT
    clean = [check(sanitizer, tool) for tool in TOOLS]  # the second also where the first found something
    return 0 if all(clean) else 1


def shapes(device: str) -> None:
    """Run each kernel on a few shapes and compare it with its reference; raises AssertionError where they differ."""
    for run in _cases():
        run(device)
    if device == "cuda":
        import torch  # noqa: PLC0415  # the driver itself needs none

        torch.cuda.synchronize()
    print("every shape ran")


def _cases() -> list[Callable[[str], None]]:
    return [_top1, _slots, _match, _merge, _append]


def _top1(device: str) -> None:
    import torch  # noqa: PLC0415

    from kernels import top1  # noqa: PLC0415

    scratch = top1.Scratch(torch.device(device))
    for rows, vocab in [(1, 3), (1, 20_000), (3, 4097), (9, 20_001), (17, 257)]:
        for dtype in (torch.float32, torch.bfloat16):
            logits = torch.randn(rows, vocab, device=device).to(dtype)
            token, probability = top1.top1(logits, scratch)
            wanted, certain = top1.top1_reference(logits)
            assert torch.equal(token, wanted)
            torch.testing.assert_close(probability, certain, rtol=1e-5, atol=0)
            largest, total, place = top1.partial(logits, padding=1)
            wanted, _ = top1.top1_reference(logits[:, :-1])
            assert torch.equal(top1.finish(largest.T, total.T, place.T.long())[0], wanted)


def _slots(device: str) -> None:
    import torch  # noqa: PLC0415

    from kernels import counters, decide, top1  # noqa: PLC0415

    scratch = top1.Scratch(torch.device(device))
    for batch, width in [(1, 1), (3, 3), (9, 8)]:
        continuation = torch.randint(40, (batch, width), dtype=torch.int32, device=device)
        length = torch.randint(width + 1, (batch,), dtype=torch.int32, device=device)
        live = (torch.arange(batch, device=device) % 3 != 1).int()
        mine, theirs = (decide.Drafts.start(live.clone(), width, scratch) for _ in range(2))
        for slot in range(width):
            logits = torch.randn(batch, 9000, device=device) * 5
            logits[0, continuation[0, slot].long()] = 40.0
            token = decide.take_slot(mine, slot, logits, continuation, length, 0.28, width)
            _, probability = top1.top1_reference(logits)
            decide.decide(theirs, slot, token, probability, continuation, length, 0.28, width)
        slots = torch.randperm(batch, device=device).int()
        drafted = torch.zeros(batch, 2, dtype=torch.int32, device=device)
        totals = torch.zeros(len(counters.DEVICE_FIELDS), dtype=torch.int64, device=device)
        token, count = decide.assemble(mine, continuation, length, slots, drafted, totals, width)
        wanted, wanted_count, counted = decide.assemble_reference(theirs, continuation, length, 0, width)
        assert torch.equal(token, wanted)
        assert torch.equal(count, wanted_count)
        assert totals[: counted.shape[0]].tolist() == counted.tolist()


def _match(device: str) -> None:
    import torch  # noqa: PLC0415

    from kernels import match  # noqa: PLC0415

    for sizes, window, width in [([0, 1, 2, 3, 9], 9, 1), ([2000, 1500, 7], 2000, 8), ([4097], 1023, 3)]:
        context = torch.randint(3, (len(sizes), window), dtype=torch.int32, device=device)
        lengths = torch.tensor(sizes, dtype=torch.int32, device=device)
        slots = torch.arange(len(sizes), dtype=torch.int32, device=device).flip(0).contiguous()
        best = torch.zeros(len(sizes), dtype=torch.int64, device=device)
        found = match.match(context, slots, lengths, width, max(sizes), best)
        for got, wanted in zip(found, match.match_reference(context, slots, lengths, width), strict=True):
            assert torch.equal(got, wanted)


def _merge(device: str) -> None:
    import torch  # noqa: PLC0415

    from kernels import counters, match, tail  # noqa: PLC0415

    for sizes, width, forwards in [([1, 2, 3, 9], 1, 1), ([2000, 1500, 7, 30], 8, 2), ([40], 5, 0)]:
        batch = len(sizes)
        context = torch.randint(3, (batch, max(sizes)), dtype=torch.int32, device=device)
        lengths = torch.tensor(sizes, dtype=torch.int32, device=device)
        slots = torch.arange(batch, device=device)
        drafts = torch.randint(3, (batch, width), device=device)
        found, count = match.match_reference(context, slots, lengths, width)
        wanted, _, _ = tail.merge_reference(drafts, found, count, forwards)
        best, totals = (
            torch.zeros(batch, dtype=torch.int64, device=device),
            torch.zeros(len(counters.DEVICE_FIELDS), dtype=torch.int64, device=device),
        )
        sampled, drafted = torch.ones(batch, dtype=torch.int32, device=device), torch.zeros_like(slots[:, None].int())
        drafted = drafted.repeat(1, 2)
        tail.merge(context, slots, lengths, drafts, sampled, forwards, max(sizes), best, drafted, totals)
        assert torch.equal(drafts, wanted)


def _append(device: str) -> None:
    import numpy as np  # noqa: PLC0415
    import torch  # noqa: PLC0415

    from kernels import context, counters  # noqa: PLC0415

    copy = context.Context(5, 40, torch.device(device), limit=4 * 5 * 32)
    totals = torch.zeros(len(counters.DEVICE_FIELDS), dtype=torch.int64, device=device)
    truth = {"a": list(range(30)), "b": [7], "c": list(range(100, 131))}
    for step in range(6):
        names = ["c", "a", "b"] if step % 2 else ["a", "b", "c"]
        table = np.full((3, 64), -1, np.int32)
        for place, name in enumerate(names):
            table[place, : len(truth[name])] = truth[name]
        copy.follow(names, table, [len(truth[name]) for name in names], None)
        sampled = torch.randint(50, (3, 3), dtype=torch.int32, device=device)
        copy.append(sampled, torch.tensor([3, 0, step % 3], dtype=torch.int32, device=device), totals)
        for place, count in enumerate([3, 0, step % 3]):
            truth[names[place]] += sampled[place, :count].tolist()
        for name, slot in zip(names, copy.slots.tolist(), strict=True):
            size = len(truth[name])
            places = [at % copy.window for at in range(max(0, size - copy.window), size)]
            assert copy.tokens[slot].cpu()[places].tolist() == truth[name][-copy.window :]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--shapes"]:
        shapes(sys.argv[2])
    else:
        sys.exit(main())
