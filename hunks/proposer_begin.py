"""Tells the draft controller that a proposal starts."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/spec_decode/llm_base_proposer.py",
    why="the controller resets its per-proposal state here, on every path",
    upstream="vllm-project/vllm#35301 (open): early exit of drafting",
    remove_when="vLLM stops drafting by confidence and merges n-gram continuations with MTP drafts",
    calls=("draft",),
    variants=(
        Variant(
            anchor=Anchor("SpecDecodeBaseProposer.propose", "batch_size = common_attn_metadata.batch_size()"),
            edit=Edit(Where.AFTER, "_radiance_draft.begin(self, num_speculative_tokens, batch_size)"),
            fingerprints={
                "0.27.1": "1b2dcf9978c07d45",
                "0.28.0": "1b2dcf9978c07d45",
                "0.29.0": "1b2dcf9978c07d45",
                "0.30.0": "4bb33f43699a3787",
                "0.31.0": "4bb33f43699a3787",
                "0.32.0": "4bb33f43699a3787",
                "0.33.0": "4bb33f43699a3787",
            },
        ),
    ),
)
