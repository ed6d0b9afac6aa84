"""Lets the draft controller pick a slot's drafts and take their confidence."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/spec_decode/llm_base_proposer.py",
    why="the confidence of a draft is only known where its logits are",
    upstream="vllm-project/vllm#35301 (open): early exit of drafting",
    remove_when="vLLM stops drafting by confidence and merges n-gram continuations with MTP drafts",
    calls=("draft",),
    variants=(
        Variant(
            anchor=Anchor(
                "SpecDecodeBaseProposer._greedy_sample",
                "return self.model.compute_logits(hidden_states).argmax(dim=-1)",
            ),
            edit=Edit(
                Where.BEFORE,
                "if (_radiance := _radiance_draft.sample(self, hidden_states)) is not None:\n    return _radiance",
            ),
            fingerprints={
                "0.27.1": "55bd2bf35204729a",
                "0.28.0": "55bd2bf35204729a",
                "0.29.0": "55bd2bf35204729a",
                "0.30.0": "55bd2bf35204729a",
                "0.31.0": "55bd2bf35204729a",
                "0.32.0": "55bd2bf35204729a",
                "0.33.0": "55bd2bf35204729a",
            },
        ),
    ),
)
