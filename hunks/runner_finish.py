"""Lets the draft controller assemble the drafts that are verified."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/worker/gpu_model_runner.py",
    why="kept drafts and verbatim continuation become one list a request",
    upstream="vllm-project/vllm#35301 (open): early exit of drafting",
    remove_when="vLLM stops drafting by confidence and merges n-gram continuations with MTP drafts",
    calls=("draft",),
    variants=(
        Variant(
            anchor=Anchor("GPUModelRunner.propose_draft_token_ids", "return draft_token_ids"),
            edit=Edit(Where.BEFORE, "draft_token_ids = _radiance_draft.finish(self, draft_token_ids)"),
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
