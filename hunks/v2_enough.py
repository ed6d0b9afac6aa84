"""Ends drafting after the first pass where that is enough, in vLLM before 0.32."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/worker/gpu/spec_decode/autoregressive/speculator.py",
    why="these releases know one number of drafts",
    upstream="none: vLLM's adaptive verification trims rows after drafting them all",
    remove_when="vLLM chooses the number of draft forwards from what requests accept",
    calls=("speculator",),
    since="0.29",
    until="0.31",
    variants=(
        Variant(
            anchor=Anchor(
                "AutoRegressiveSpeculator.propose",
                "if self.num_speculative_steps == 1: ...",
            ),
            edit=Edit(Where.BEFORE, "if _radiance_speculator.enough(self):\n    return self.draft_tokens[:num_reqs]"),
            fingerprints={
                "0.29.0": "231b54904bdf1954",
                "0.30.0": "5f9b29da53bd1555",
                "0.31.0": "d0ae274a6fe6ac35",
            },
        ),
    ),
)
