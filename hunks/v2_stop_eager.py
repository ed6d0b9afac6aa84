"""Stops the loop of draft steps outside of graphs, in vLLM before 0.32."""

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
                "AutoRegressiveSpeculator._generate_fused_drafts",
                "for step in range(1, self.num_speculative_steps): ...",
            ),
            edit=Edit(Where.BODY, "if _radiance_speculator.enough(self, step):\n    break"),
            fingerprints={
                "0.29.0": "bf4c4155b834cc88",
                "0.30.0": "bf4c4155b834cc88",
                "0.31.0": "bf4c4155b834cc88",
            },
        ),
    ),
)
