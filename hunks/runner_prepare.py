"""Hands this step's tokens to the draft controller where drafting is unpadded and they are lists."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/worker/gpu_model_runner.py",
    why="unpadded drafting does not pass prepare_next_token_ids_padded",
    upstream="vllm-project/vllm#35301 (open): early exit of drafting",
    remove_when="vLLM stops drafting by confidence and merges n-gram continuations with MTP drafts",
    calls=("draft",),
    variants=(
        Variant(
            anchor=Anchor(
                "GPUModelRunner.propose_draft_token_ids",
                "if self.supports_mm_inputs and self.drafter.supports_mm_inputs: ...",
            ),
            edit=Edit(Where.BEFORE, "_radiance_draft.prepare(self, sampled_token_ids)"),
            fingerprints={
                "0.27.1": "b98c5999c9c7a439",
                "0.28.0": "b98c5999c9c7a439",
                "0.29.0": "b98c5999c9c7a439",
                "0.30.0": "b98c5999c9c7a439",
                "0.31.0": "b98c5999c9c7a439",
                "0.32.0": "b98c5999c9c7a439",
                "0.33.0": "c5a09200ded1ef52",
            },
        ),
    ),
)
