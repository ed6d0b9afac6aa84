"""Hard cases on a patched vLLM on a GPU: ``python -m tests.bench.gpu_robust --model DIR [--engine JSON]``.

32 concurrent requests under a JSON schema, then 200 of mixed lengths, some aborted, some
ending at max_model_len. Every one must be answered with the tokens it asked for. Exits
with 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from typing import Any

from tests.real.prompts import mixed

LONGEST = 512
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0, "maximum": 999},
        "colour": {"enum": ["red", "green", "blue"]},
        "sizes": {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 2, "maxItems": 4},
        "done": {"type": "boolean"},
    },
    "required": ["id", "colour", "sizes", "done"],
    "additionalProperties": False,
}


def fits(text: str) -> bool:
    """Whether a text is an object of SCHEMA."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return (
        found.keys() == SCHEMA["properties"].keys()  # type: ignore[attr-defined]
        and found["colour"] in ("red", "green", "blue")
        and isinstance(found["done"], bool)
        and 2 <= len(found["sizes"]) <= 4
    )


def under_schema(llm: Any) -> int:
    """Return how many of 32 concurrent requests gave no object of the schema."""
    from vllm import SamplingParams  # noqa: PLC0415
    from vllm.sampling_params import StructuredOutputsParams  # noqa: PLC0415

    wanted = StructuredOutputsParams(json=SCHEMA)
    turns = [[{"role": "user", "content": f"{prompt} Answer with one JSON object."}] for prompt in (mixed() * 2)[:32]]
    sampling = [
        SamplingParams(temperature=(0.0, 0.8)[n % 2], max_tokens=200, structured_outputs=wanted) for n in range(32)
    ]
    outputs = llm.chat(turns, sampling, use_tqdm=False)
    bad = [output.outputs[0].text for output in outputs if not fits(output.outputs[0].text)]
    print(f"json: {32 - len(bad)} of 32 valid", *bad[:2], flush=True)
    return len(bad)


def mixed_lengths(llm: Any) -> int:
    """Return how many of 200 requests were not answered as asked."""
    from vllm import SamplingParams  # noqa: PLC0415

    draw = random.Random(0)
    tokenizer, engine = llm.get_tokenizer(), llm.llm_engine
    text = tokenizer(" ".join(mixed()) * 3, add_special_tokens=False)["input_ids"]
    asked: dict[str, int] = {}
    waiting = []
    for number in range(200):
        length = draw.choice([1, 2, 3, 17, 64, 200, LONGEST - 9, LONGEST - 2, LONGEST - 1])
        most = draw.choice([1, 2, 9, 40, 400])
        start = draw.randrange(len(text) - length)
        asked[str(number)] = min(most, LONGEST - length)
        sampling = SamplingParams(temperature=draw.choice([0.0, 0.8, 1.2]), max_tokens=most, ignore_eos=True)
        waiting.append((str(number), {"prompt_token_ids": text[start : start + length]}, sampling))
    aborted = set(draw.sample(sorted(asked), 30))
    answered: dict[str, int] = {}
    while waiting or engine.has_unfinished_requests():
        for request in waiting[:7]:
            engine.add_request(*request)
        del waiting[:7]
        for output in engine.step():
            answered[output.request_id] = len(output.outputs[0].token_ids)
            if output.request_id in aborted and not output.finished and answered[output.request_id] > 3:
                engine.abort_request([output.request_id])
                aborted.discard(output.request_id)
                asked.pop(output.request_id)
    wrong = {name: (answered.get(name), tokens) for name, tokens in asked.items() if answered.get(name) != tokens}
    print(f"mixed: {len(asked) - len(wrong)} of {len(asked)} as asked, {200 - len(asked)} aborted", wrong, flush=True)
    return len(wrong)


def main() -> None:
    """Run the cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--engine", default="{}", help="more LLM arguments, JSON")
    options = parser.parse_args()
    from vllm import LLM  # noqa: PLC0415

    llm = LLM(
        model=options.model,
        max_model_len=LONGEST,
        max_num_seqs=32,
        gpu_memory_utilization=0.1,
        # Room for a third of what 32 requests want: some are preempted.
        kv_cache_memory_bytes=120 << 20,
        speculative_config={"method": "mtp", "num_speculative_tokens": options.k},
        **json.loads(options.engine),
    )
    wrong = under_schema(llm) + mixed_lengths(llm)
    sys.stdout.flush()
    os._exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
