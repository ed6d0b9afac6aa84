"""Record acceptance traces on the CPU engine: ``record.py JOB RESULT``, run by tests/bench/record.py.

No draft is ever verified, so every step yields one token and the drafter proposes at every
position of the text that the target writes alone.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from vllm import LLM, SamplingParams
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer


class Recorder:
    """What the drafter proposed after every token, by request: drafts and their top-1 probabilities."""

    def __init__(self, llm: LLM) -> None:
        core: Any = llm.llm_engine.engine_core
        self.runner = core.engine_core.model_executor.driver_worker.worker.model_runner
        self.drafts: dict[str, list[list[int]]] = {}
        self.confidence: dict[str, list[list[float]]] = {}
        self._slots: list[list[float]] = []
        self._wrap_logits()
        self._wrap_propose()
        self._wrap_scheduler()

    def _wrap_logits(self) -> None:
        model = self.runner.drafter.model
        compute = model.compute_logits

        def compute_logits(*args: Any, **kwargs: Any) -> torch.Tensor:
            logits: torch.Tensor = compute(*args, **kwargs)
            self._slots.append(logits.float().softmax(dim=-1).amax(dim=-1).tolist())
            return logits

        model.compute_logits = compute_logits

    def _wrap_propose(self) -> None:
        propose = SpecDecodeBaseProposer.propose

        def recorded(proposer: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
            self._slots = []
            drafts: torch.Tensor = propose(proposer, *args, **kwargs)
            for row, request in enumerate(self.runner.input_batch.req_ids[: drafts.shape[0]]):
                self.drafts.setdefault(request, []).append(drafts[row].tolist())
                self.confidence.setdefault(request, []).append([round(slot[row], 3) for slot in self._slots])
            return drafts

        SpecDecodeBaseProposer.propose = recorded

    def _wrap_scheduler(self) -> None:
        update = Scheduler.update_draft_token_ids

        def dropped(scheduler: Any, draft_token_ids: Any) -> None:
            update(scheduler, draft_token_ids)
            for request in scheduler.running:
                request.spec_token_ids = []

        Scheduler.update_draft_token_ids = dropped


def main(given: Path, result: Path) -> None:
    """Serve the job's prompts and write one trace a prompt."""
    job = json.loads(given.read_text())
    llm = LLM(
        model=job["model"],
        dtype="float32",
        max_model_len=2048,
        max_num_seqs=job["max_num_seqs"],
        enforce_eager=True,
        enable_prefix_caching=False,
        speculative_config={"method": "mtp", "num_speculative_tokens": job["num_speculative_tokens"]},
    )
    recorder = Recorder(llm)
    turns = [[{"role": "user", "content": prompt}] for prompt in job["prompts"]]
    sampling = SamplingParams(
        temperature=job["temperature"], seed=job["seed"], max_tokens=job["max_tokens"], ignore_eos=True
    )
    traces = []
    outputs = llm.chat(turns, sampling, use_tqdm=False)
    # The engine numbers its requests in order, and may add a suffix to their names.
    names = sorted(recorder.drafts, key=lambda name: int(name.split("-")[0]))
    for name, output in zip(names, outputs, strict=True):
        traces.append(
            {
                "prompt": list(output.prompt_token_ids or ()),
                "output": list(output.outputs[0].token_ids),
                "drafts": recorder.drafts[name],
                "confidence": recorder.confidence[name],
            }
        )
    result.write_text(json.dumps(traces))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
