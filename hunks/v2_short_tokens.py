"""Lets the short head choose a draft step's tokens."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/worker/gpu/spec_decode/speculator.py",
    why="reading the whole output head is more than half of a draft forward",
    upstream="none: vLLM quantizes the draft head, and reads all of it",
    remove_when="vLLM drafts from a part of the vocabulary",
    calls=("head",),
    since="0.29",
    variants=(
        Variant(
            anchor=Anchor(
                "DraftModelSpeculator.sample_draft",
                "if draft_logits is not None: ...",
            ),
            edit=Edit(
                Where.BEFORE,
                "if (_radiance := _radiance_head.short_tokens(self, hidden_states)) is not None:\n    return _radiance",
            ),
            fingerprints={
                "0.29.0": "58a5da180345eee1",
                "0.30.0": "07f50f5b5fce503d",
                "0.31.0": "07f50f5b5fce503d",
            },
        ),
        Variant(
            anchor=Anchor(
                "DraftModelSpeculator.sample_draft",
                "logits = self.compute_draft_logits(hidden_states, spec_step_idx)",
            ),
            edit=Edit(
                Where.BEFORE,
                "if (_radiance := _radiance_head.short_tokens(self, hidden_states)) is not None:\n    return _radiance",
            ),
            fingerprints={
                "0.32.0": "40020adf47628044",
                "0.33.0": "fa122407ba546b60",
            },
        ),
    ),
)
