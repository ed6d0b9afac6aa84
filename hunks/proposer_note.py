"""Hands the tokens accepted in this very step to the draft controller, from the device."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/spec_decode/llm_base_proposer.py",
    why="padded drafting runs before vLLM has this step's tokens on the host, and a continuation must start after them",
    upstream="vllm-project/vllm#35301 (open): early exit of drafting",
    remove_when="vLLM stops drafting by confidence and merges n-gram continuations with MTP drafts",
    calls=("draft",),
    variants=(
        Variant(
            anchor=Anchor(
                "SpecDecodeBaseProposer.prepare_next_token_ids_padded",
                "return next_token_ids, valid_sampled_tokens_count",
            ),
            edit=Edit(
                Where.BEFORE,
                "_radiance_draft.note(self, gpu_input_batch, sampled_token_ids, valid_sampled_tokens_count)",
            ),
            fingerprints={
                "0.27.1": "62c015b3be9a38ec",
                "0.28.0": "62c015b3be9a38ec",
                "0.29.0": "62c015b3be9a38ec",
                "0.30.0": "47796e21d5d71c48",
                "0.31.0": "47796e21d5d71c48",
                "0.32.0": "47796e21d5d71c48",
                "0.33.0": "47796e21d5d71c48",
            },
        ),
    ),
)
