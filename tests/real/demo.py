"""``make demo``: patch a real vLLM, serve the same prompts stock and patched, show what changed, take it out again."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tests.real import cache, engine
from tests.real.compare import first_differences, target_top_two, text_changes
from tests.real.engine import Engine, Job, Served
from tests.real.jobs import JOB, ON
from tests.real.tree import changes

PROMPTS = 16
DEMO = replace(JOB, prompts=JOB.prompts[:PROMPTS], num_speculative_tokens=6)


def step(text: str) -> None:
    """Print a heading on stderr: stdout is for the result."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def patched(built: Engine) -> Iterator[None]:
    """Put the patch into the engine's own vLLM, and take it out whatever happens.

    Raises ``HarnessError`` if vLLM is not byte for byte what it was.
    """
    before = engine.vllm_fingerprint(built.site)
    try:
        engine.patch("apply", "--target", built.python)
        yield
    finally:
        step("taking the patch out")
        engine.patch("revert", "--target", built.python)
        if left := changes(before, engine.vllm_fingerprint(built.site)):
            raise cache.HarnessError(f"the patch left something behind in {built.site}: {left}")


def table(job: Job, stock: Served, served: Served, same: int) -> str:
    """Return what changed as aligned columns.

    Drafted is what the drafter proposed, verified what the target checked of it.
    """
    runs = (stock, served)
    numbers = {
        "drafted tokens": [run.drafts * job.num_speculative_tokens for run in runs],
        "verified tokens": [run.draft_tokens for run in runs],
        "accepted tokens": [run.accepted_tokens for run in runs],
        "tokens per second": [round(run.tokens_per_second) for run in runs],
    }
    lines = [f"  {'':<18}{'stock':>10}{'patched':>10}"]
    lines += [f"  {name:<18}{left:>10,}{right:>10,}" for name, (left, right) in numbers.items()]
    lines.append(f"  {'same text':<18}{'':>10}{f'{same} of {len(stock.tokens)}':>10}")
    return "\n".join(lines)


def run() -> None:
    """Run the demonstration.

    Raises ``HarnessError`` when anything fails, the text changes, or something is left behind.
    """
    step("setting up a vLLM for the CPU (about four minutes the first time, kept for the next)")
    built = engine.get()
    step(f"serving {PROMPTS} prompts with stock vLLM {engine.RELEASE.version}, 8 in flight")
    stock = engine.serve(built, DEMO)
    step(f"patching {built.site / 'vllm'}")
    with patched(built):
        step(f"serving them patched, with {' '.join(f'{k}={v}' for k, v in ON.items())}")
        served = engine.serve(built, DEMO, env=ON)
    step("vLLM is byte for byte what it was\n")
    changed = text_changes(stock.tokens, served.tokens, target_top_two(built, stock.prompts, stock.tokens))
    same = len(stock.tokens) - len(first_differences(stock.tokens, served.tokens))
    print(table(DEMO, stock, served, same), flush=True)
    if changed:
        raise cache.HarnessError("\n".join(["the text changed, which it never may:", *changed]))


def main() -> int:
    """Run the demonstration and return its exit code."""
    # So that being ended, like ctrl-C, still takes the patch out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with cache.locked("engine-in-use"):
            run()
    except cache.HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
