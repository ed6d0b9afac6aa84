"""Try the short draft head on a real draft model and vLLM's own speculator: ``shortlist.py JOB RESULT``.

The CPU build has no V2 runner to run, but its draft model, its LogitsProcessor and its
MTPSpeculator are the ones that CUDA engines use. The JOB is {"model": FOLDER, "prompts":
[...], "size": N}; tests/e2e/test_shortlist.py asserts on the RESULT.
"""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from serve import runner  # type: ignore[import-not-found]  # beside this script
from vllm import LLM, SamplingParams
from vllm._radiance import guard, live, shortlist, speculator
from vllm.v1.worker.gpu.spec_decode.mtp.speculator import MTPSpeculator

# CUDA's product of a layer without quantization; the CPU's own packs the weight, which this head changes.
shortlist.Head.cpu_linear = staticmethod(torch.nn.functional.linear)
TOKENS = 48


class Loaded(MTPSpeculator):  # type: ignore[misc]  # vLLM is not among what types are checked with
    """vLLM's speculator around a draft model that is loaded already."""

    def __init__(self, config: Any, model: Any) -> None:
        self.vllm_config, self.loaded = config, model
        self.speculative_config = config.speculative_config
        self.use_local_argmax_reduction = self.use_acceptance_estimator = False
        self.acceptance_estimator = self.draft_watermarker = None

    def load_draft_model(self, *_: Any) -> Any:
        """Return the draft model."""
        return self.loaded

    def draft(self, hidden: torch.Tensor) -> list[int]:
        """Return what sample_draft chooses."""
        tokens: list[int] = self.sample_draft(hidden, None, None, None, None, None, None).tolist()
        return tokens


def serve(llm: LLM, drafter: Any, prompts: list[str]) -> tuple[torch.Tensor, list[list[int]]]:
    """Return the hidden states [S, H] that drafts were chosen from, and the requests' tokens."""
    states: list[torch.Tensor] = []
    choose = drafter._greedy_sample

    def watched(hidden: torch.Tensor) -> Any:
        states.append(hidden.clone())
        return choose(hidden)

    drafter._greedy_sample = watched
    turns: Any = [[{"role": "user", "content": prompt}] for prompt in prompts]
    outputs = llm.chat(turns, SamplingParams(temperature=0, max_tokens=TOKENS), use_tqdm=False)
    drafter._greedy_sample = choose
    return torch.cat(states), [[*(o.prompt_token_ids or []), *o.outputs[0].token_ids] for o in outputs]


def context_of(tokens: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return table, rows and lengths of the requests' tokens as the V2 runner keeps them, no row at its place."""
    table = torch.full((len(tokens) + 1, max(map(len, tokens)) + 5), -1, dtype=torch.int32)
    rows = torch.arange(len(tokens), 0, -1)
    lengths = torch.zeros(len(tokens) + 1, dtype=torch.int32)
    for row, line in zip(rows.tolist(), tokens, strict=True):
        table[row, : len(line)] = torch.tensor(line, dtype=torch.int32)
        lengths[row] = len(line)
    return table, rows, lengths


def refused(model: Any, vocabulary: int, size: int) -> dict[str, str | None]:
    """Return the reasons of an attachment to a draft model that was changed, one way at a time."""
    reasons = {}
    head, compute = model.lm_head, model.compute_logits
    half = torch.nn.Parameter(head.weight[: vocabulary // 2], requires_grad=False)
    tries: dict[str, tuple[Any, str, Any]] = {
        "quantized": (head, "quant_method", object()),
        "other order": (model, "compute_logits", lambda hidden: compute(hidden).flip(-1)),
        "by place": (model, "compute_logits", lambda hidden: compute(hidden).index_fill(1, torch.tensor([7]), -9.0)),
        "fixed shape": (model, "compute_logits", lambda hidden: compute(hidden)[:, list(range(vocabulary))]),
        "no weights": (model, "compute_logits", lambda hidden: 0 * compute(hidden)),
        "smaller": (head, "weight", half),
    }
    for name, (owner, attribute, value) in tries.items():
        before = getattr(owner, attribute)
        setattr(owner, attribute, value)
        short = shortlist.Shortlist(vocabulary, size, torch.device("cpu"))
        reasons[name] = short.attach(model)
        if attribute == "compute_logits":
            delattr(owner, attribute)
        else:
            setattr(owner, attribute, before)
    return reasons


def main(given: Path, result: Path) -> None:
    """Attach, draft, learn, and be refused."""
    job = json.loads(given.read_text())
    size = job["size"]
    llm = LLM(
        model=job["model"],
        dtype="float32",
        max_model_len=512,
        max_num_seqs=4,
        enforce_eager=True,
        speculative_config={"method": "mtp", "num_speculative_tokens": 4},
    )
    served = runner(llm)
    drafter = served.drafter
    model, config = drafter.model, served.vllm_config
    vocabulary = config.model_config.get_vocab_size()
    hidden, tokens = serve(llm, drafter, job["prompts"])
    facts: dict[str, Any] = {"vocabulary": vocabulary, "states": hidden.shape[0], "live": live.refusal(config)}
    with torch.inference_mode():
        before = sorted(model.state_dict()), id(model.lm_head), id(model.lm_head.weight)
        v2 = SimpleNamespace(vllm_config=config, device=torch.device("cpu"), max_num_reqs=4, max_model_len=512)
        facts["dense"] = speculator.dense(v2, False)
        speculator_of_vllm = Loaded(config, model)
        whole = model.compute_logits(hidden)
        facts["stock"] = whole.argmax(dim=-1).tolist()
        speculator_of_vllm.load_model(served.model)
        depth = speculator._depths[id(config)]
        short = depth.shortlist
        assert short is not None
        facts["first_ids"] = short.ids.tolist() == list(range(size))
        facts["first"] = speculator_of_vllm.draft(hidden)
        facts["first_wanted"] = short.ids[whole[:, short.ids].argmax(dim=-1)].tolist()
        looks = [short.follow(*context_of(tokens)) for _ in range(2 * shortlist.EVERY + 1)]
        facts["looks"] = [step for step, looked in enumerate(looks) if looked]
        facts["ids"] = sorted(short.ids.tolist())
        facts["contexts"] = sorted({token for line in tokens for token in line})
        head = short._heads[0][3]
        facts["rows_are_the_heads"] = bool(torch.equal(head.weight, model.lm_head.weight[short.ids]))
        facts["learnt"] = speculator_of_vllm.draft(hidden)
        facts["learnt_wanted"] = short.ids[whole[:, short.ids].argmax(dim=-1)].tolist()
        facts["untouched"] = before == (sorted(model.state_dict()), id(model.lm_head), id(model.lm_head.weight))
        facts["refused"] = refused(model, vocabulary, size)
        head.weight = torch.nn.Parameter(torch.zeros(3, 5), requires_grad=False)
        facts["broken"] = speculator_of_vllm.draft(hidden)
        facts["broken_features"] = sorted(guard.broken)
        facts["kept"] = depth.shortlist is short
    result.write_text(json.dumps(facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)
