"""Times the payload's kernels on a GPU beside what they replace: ``python -m tests.bench.gpu_kernels``.

GPU time from replayed CUDA graphs, medians in microseconds; inputs are random and, where
they are smaller than the L2 cache, rotated so that they are read from memory.
"""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Callable

import torch
import triton

from kernels import decide, match, top1

COPIES = 8


def graph_time(run: Callable[[int], object], rounds: int = 20) -> float:
    """Return the median GPU time of run(i) in microseconds, launched from a graph of COPIES calls."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(COPIES):
            run(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [run(i) for i in range(COPIES)]
    times = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000 / COPIES)
    del kept
    return statistics.median(times)


def host_time(run: Callable[[int], object], calls: int = 300) -> float:
    """Return the host time of launching run(i), in microseconds a call."""
    for i in range(20):
        run(i % COPIES)
    torch.cuda.synchronize()
    start = datetime.datetime.now()
    for i in range(calls):
        run(i % COPIES)
    spent = (datetime.datetime.now() - start).total_seconds() * 1e6 / calls
    torch.cuda.synchronize()
    return spent


def confidence() -> None:
    """Top-1 and its probability beside one copy of the logits, argmax, and softmax + max."""
    print(
        "\ntop-1 confidence, V = 151,936, bf16          copy   top1  ratio  argmax  softmax+max  faster  launch(host)"
    )
    for rows in (1, 8, 64):
        _confidence(rows, [torch.randn(rows, 151_936, device="cuda").bfloat16() * 4 for _ in range(COPIES)])


def _confidence(rows: int, logits: list[torch.Tensor]) -> None:
    target, scratch = torch.empty_like(logits[0]), top1.Scratch(logits[0].device)
    copy = graph_time(lambda i: target.copy_(logits[i]))
    mine = graph_time(lambda i: top1.top1(logits[i], scratch))
    argmax = graph_time(lambda i: logits[i].argmax(-1))
    soft = graph_time(lambda i: torch.softmax(logits[i].float(), -1).max(-1))
    host = host_time(lambda i: top1.top1(logits[i], scratch))
    print(
        f"  B = {rows:<38} {copy:>6.1f} {mine:>6.1f} {mine / copy:>6.2f} {argmax:>7.1f} {soft:>12.1f}"
        f" {soft / mine:>6.1f}x {host:>9.1f}"
    )


def slot() -> None:
    """Everything the controller adds to a draft slot at B = 8, host wait included."""
    logits = [torch.randn(8, 151_936, device="cuda").bfloat16() * 4 for _ in range(COPIES)]
    continuation = torch.zeros(8, 8, dtype=torch.int32, device="cuda")
    length = torch.zeros(8, dtype=torch.int32, device="cuda")
    going, event = torch.zeros(1, dtype=torch.int32, pin_memory=True), torch.cuda.Event()
    live = torch.ones(8, dtype=torch.int32, device="cuda")
    drafts = decide.Drafts.start(live, 8, top1.Scratch(live.device))

    def ours(i: int) -> None:
        decide.take_slot(drafts, 0, logits[i], continuation, length, 0.28, 8)
        going.copy_(drafts.total[:1], non_blocking=True)
        event.record()
        event.synchronize()
        int(going)

    def stock(i: int) -> None:
        logits[i].argmax(-1)
        event.record()
        event.synchronize()

    mine, theirs = host_time(ours), host_time(stock)
    print(
        f"\ncontroller a slot, B = 8: {mine:.1f} us with its copy and wait; stock's argmax and a wait: {theirs:.1f} us"
    )


def continuation() -> None:
    """The match beside the context it reads."""
    print("\nverbatim match, K = 8                     us (GPU)   launch(host)   context")
    for rows, size in [
        (1, 8192),
        (8, 8192),
        (64, 8192),
        (256, 8192),
        (1, 32768),
        (1, 131_072),
        (8, 131_072),
        (1, 1_048_576),
    ]:
        context = torch.randint(0, 50_000, (rows, size), dtype=torch.int32, device="cuda")
        context[:, -8:] = context[:, 100:108]
        lengths = torch.full((rows,), size, dtype=torch.int32, device="cuda")
        slots = torch.arange(rows, dtype=torch.int32, device="cuda")
        best = torch.zeros(rows, dtype=torch.int64, device="cuda")

        def run(_: int) -> object:
            return match.match(context, slots, lengths, 8, size, best)  # noqa: B023  # called within this round

        took, launch = graph_time(run), host_time(run)
        print(f"  B = {rows:<4} n = {size:<10} {took:>20.1f} {launch:>12.1f}   {context.nbytes >> 10} KiB")


def upstream_match() -> None:
    """vLLM's own GPU n-gram kernel on the same work, where it can be built."""
    try:
        from vllm.v1.spec_decode.ngram_proposer_gpu import NgramGPUKernel  # noqa: PLC0415

        kernel = NgramGPUKernel.__new__(NgramGPUKernel)
        torch.nn.Module.__init__(kernel)
        kernel.min_n, kernel.max_n, kernel.k = 3, 5, 8
        for rows, size in [(64, 8192), (1, 131_072)]:
            tokens = torch.randint(0, 50_000, (rows, size), dtype=torch.int32, device="cuda")
            lengths = torch.full((rows,), size, dtype=torch.int32, device="cuda")
            find = kernel._find_first_and_extract_all_n_parallel
            took = graph_time(lambda _: find(tokens, lengths, 3, 5, 8))  # noqa: B023
            print(f"  vLLM's own kernel, uncompiled, B = {rows} n = {size}: {took:.1f} us")
    except Exception as error:  # a private class of vLLM: say why instead of failing the rest
        print(f"  vLLM's own kernel was not measured: {type(error).__name__}: {str(error)[:200]}")


if __name__ == "__main__":
    versions = f"torch {torch.__version__}  triton {triton.__version__}"
    print(f"{datetime.date.today()}  {torch.cuda.get_device_name()}  {versions}")
    confidence()
    slot()
    continuation()
    upstream_match()
