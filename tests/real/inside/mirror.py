"""Serve requests that come, move, are preempted and go, and compare the draft controller's tokens with the truth.

Runs under the engine's Python, from a patched overlay: ``mirror.py JOB RESULT``. The JOB is
{"model": FOLDER, "prompts": [...], "padded": bool}; tests/e2e/test_mirror.py asserts on the RESULT.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from vllm import LLM, SamplingParams
from vllm._radiance import draft, live, match, settings
from vllm.v1.worker.cpu_worker import CPUWorker

DRAFTS = 4
BLOCK = 32
# Two to three requests' worth, for four requests: some must be preempted.
BLOCKS = 14
LONGEST = 256


class Seed:
    """What the seed did: tokens kept by batch row, progress by request, both from the host alone."""

    def __init__(self) -> None:
        self.rows: dict[int, list[int]] = {}
        self.progress: dict[str, int] = {}

    def follow(self, batch: Any) -> dict[str, list[int]]:
        """Return what the matcher would be given for each request of the batch."""
        given = {}
        for place, name in enumerate(batch.req_ids):
            known, row = int(batch.num_tokens_no_spec[place]), self.rows.setdefault(place, [-1] * LONGEST)
            start = min(self.progress.get(name, 0), known)
            row[start:known] = batch.token_ids_cpu[place, start:known].tolist()
            self.progress[name] = known
            given[name] = row[:known]
        self.progress = {name: known for name, known in self.progress.items() if name in batch.req_ids}
        return given


class Watch:
    """What the controller knew in the last step: of each request its tokens, and the continuation it found."""

    def __init__(self) -> None:
        self.mirror: dict[str, list[int]] = {}
        self.continuation: dict[str, list[int]] = {}
        self.seed: dict[str, list[int]] = {}
        self.places: dict[str, int] = {}
        self.within_prompt: set[str] = set()
        self._seed = Seed()

    def install(self) -> None:
        """Look on after each note, and before each proposal is finished."""
        inner, finish = draft.Controller._append, draft.Controller.finish

        def appended(controller: Any, sampled: torch.Tensor, counts: torch.Tensor) -> None:
            inner(controller, sampled, counts)
            self._look(controller.context, self._batch.req_ids, counts.tolist())

        def finished(controller: Any, drafted: Any) -> Any:
            proposal = controller.proposal
            if proposal is not None:
                rows = zip(self.places, proposal.continuation.tolist(), proposal.length.tolist(), strict=True)
                self.continuation = {name: row[:length] for name, row, length in rows}
            return finish(controller, drafted)

        draft.Controller._append, draft.Controller.finish = appended, finished
        for name in ("note", "note_lists"):
            self._remember_batch(name)

    def _remember_batch(self, name: str) -> None:
        inner = getattr(draft.Controller, name)

        def noting(controller: Any, batch: Any, *tokens: Any) -> None:
            self._batch = batch
            self.seed = self._seed.follow(batch)
            inner(controller, batch, *tokens)

        setattr(draft.Controller, name, noting)

    def _look(self, context: Any, names: Sequence[str], counts: Sequence[int]) -> None:
        self.mirror, self.places, self.continuation = {}, {}, {}
        for place, (name, slot) in enumerate(zip(names, context.slots.tolist(), strict=True)):
            self.mirror[name] = context.tokens[slot, : int(context.lengths[slot])].tolist()
            self.places[name] = place
            if not counts[place]:
                self.within_prompt.add(name)


def definition(tokens: Sequence[int]) -> list[int]:
    """Return the continuation that issue 3 defines, found by trying every suffix and every place."""
    size = len(tokens)
    for length in range(min(match.MAX_MATCH, size - 1), match.MIN_MATCH - 1, -1):
        for end in range(size - 1, length - 1, -1):
            if tokens[end - length : end] == tokens[size - length :]:
                return list(tokens[end : end + DRAFTS])
    return []


def start(job: dict[str, Any]) -> LLM:
    """Return an engine whose cache and steps are too small for its requests."""
    return LLM(
        model=job["model"],
        dtype="float32",
        max_model_len=LONGEST,
        max_num_seqs=4,
        max_num_batched_tokens=64,
        num_gpu_blocks_override=BLOCKS,
        block_size=BLOCK,
        enable_prefix_caching=True,
        enforce_eager=True,
        speculative_config={
            "method": "mtp",
            "num_speculative_tokens": DRAFTS,
            "disable_padded_drafter_batch": not job["padded"],
        },
    )


def note_profiling(facts: dict[str, Any]) -> None:
    """Take down what the controller holds when vLLM measures the memory left for its KV cache."""
    measure = CPUWorker.determine_available_memory

    def measured(worker: Any) -> int:
        controller = getattr(worker.model_runner.drafter, draft.NAME, None)
        facts["bytes_before_profiling"] = controller.context.tokens.nbytes if controller else 0
        return int(measure(worker))

    CPUWorker.determine_available_memory = measured


# Attributes of the real proposer and its configuration that stand for what the controller does not do.
REFUSED = {
    "tensor parallel": ("vllm_config.parallel_config", "tensor_parallel_size", 2),
    "pipeline parallel": ("vllm_config.parallel_config", "pipeline_parallel_size", 2),
    "data parallel": ("vllm_config.parallel_config", "data_parallel_size", 2),
    "expert parallel": ("vllm_config.parallel_config", "enable_expert_parallel", True),
    "parallel drafting": ("vllm_config.speculative_config", "parallel_drafting", True),
    "method": ("vllm_config.speculative_config", "method", "ngram"),
    "probabilistic": ("", "_enable_probabilistic_draft_probs", True),
    "local argmax": ("", "use_local_argmax_reduction", True),
    "vocabulary": ("", "use_heterogeneous_vocab", True),
}


def refusals(drafter: Any) -> dict[str, str | None]:
    """Return the reason given for each of REFUSED, and for nothing of it."""
    found = {"nothing": draft.refusal(drafter)}
    for name, (path, attribute, value) in REFUSED.items():
        owner = drafter
        for part in filter(None, path.split(".")):
            owner = getattr(owner, part)
        before = getattr(owner, attribute)
        object.__setattr__(owner, attribute, value)
        found[name] = draft.refusal(drafter)
        object.__setattr__(owner, attribute, before)
    return found


def by_default(drafter: Any) -> list[str | None]:
    """Return why each runner is left to vLLM over two ranks where nobody asked for more."""
    del os.environ[live.SWITCH]
    settings.current.cache_clear()
    parallel = drafter.vllm_config.parallel_config
    object.__setattr__(parallel, "tensor_parallel_size", 2)
    return [draft.refusal(drafter), live.refusal(drafter.vllm_config)]


def wrong(watch: Watch, requests: dict[str, Any]) -> list[str]:
    """Return a line for each request whose tokens or continuation in the last step were not the true ones."""
    lines = []
    for name, mirror in watch.mirror.items():
        truth = list(requests[name].all_token_ids)
        # What was accepted past the end of a request is never shown to anybody.
        known = mirror[: len(truth)] if requests[name].is_finished() else mirror
        if known != truth:
            lines.append(f"{name}: {len(mirror)} tokens, {mirror[-8:]}; truth {len(truth)}, {truth[-8:]}")
        if watch.continuation and watch.continuation[name] != definition(mirror):
            lines.append(f"{name}: continuation {watch.continuation[name]}, by definition {definition(mirror)}")
    return lines


def count_seed(watch: Watch, requests: dict[str, Any], facts: Counter[str]) -> None:
    """Count the rows of the seed that held another request's tokens, and those that lacked this step's."""
    for name, given in watch.seed.items():
        truth = list(requests[name].all_token_ids)
        facts["seed_foreign"] += given != truth[: len(given)]
        facts["seed_late"] += len(given) < len(truth)


def serve(llm: LLM, job: dict[str, Any], watch: Watch) -> dict[str, Any]:
    """Serve all prompts, six at first and one more as one ends, and compare after every step."""
    engine, lines, facts = llm.llm_engine, [], Counter[str]()
    scheduler = engine.engine_core.engine_core.scheduler
    requests: dict[str, Any] = {}
    last: dict[str, int] = {}
    cached: set[str] = set()
    waiting = list(enumerate(llm.get_tokenizer()(job["prompts"])["input_ids"]))

    def submit() -> None:
        number, ids = waiting.pop(0)
        sampling = SamplingParams(temperature=0.0, max_tokens=20 + 13 * (number % 5), ignore_eos=True)
        engine.add_request(str(number), {"prompt_token_ids": list(ids)}, sampling)

    for _ in range(6):
        submit()
    while engine.has_unfinished_requests():
        requests |= scheduler.requests
        watch.mirror, watch.continuation, watch.seed = {}, {}, {}
        outputs = engine.step()
        facts["steps"] += 1
        cached |= {output.request_id for output in outputs if output.num_cached_tokens}
        lines += wrong(watch, requests)
        count_seed(watch, requests, facts)
        facts["compared"] += len(watch.mirror)
        facts["continuations"] += sum(map(bool, watch.continuation.values()))
        facts["moved"] += sum(last.get(name, place) != place for name, place in watch.places.items())
        last = last | watch.places
        if facts["steps"] == 30:
            engine.abort_request([next(iter(watch.places)).split("-")[0]])
        for _ in range(min(sum(output.finished for output in outputs), len(waiting))):
            submit()
    facts["preempted"] = sum(request.num_preemptions for request in requests.values())
    facts["resumed"] = sum(
        request.num_preemptions > 0 and request.get_finished_reason() is not None for request in requests.values()
    )
    facts["prefix_hits"] = len(cached)
    facts["chunked"] = len(watch.within_prompt)
    return {**facts, "requests": len(requests), "wrong": lines}


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Return what tests/e2e/test_mirror.py asserts on."""
    facts: dict[str, Any] = {}
    note_profiling(facts)
    llm = start(job)
    watch = Watch()
    watch.install()
    facts |= serve(llm, job, watch)
    drafter = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner.drafter
    controller = getattr(drafter, draft.NAME)
    counts = controller.counters.total()
    return {**facts, "controller": counts, "refusals": refusals(drafter), "by_default": by_default(drafter)}


if __name__ == "__main__":
    result = main(json.loads(Path(sys.argv[1]).read_text()))
    Path(sys.argv[2]).write_text(json.dumps(result))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
