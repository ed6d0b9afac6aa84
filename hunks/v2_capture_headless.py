"""Captures the first pass once more, without its head."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/worker/gpu/spec_decode/target_dependent_ar/speculator.py",
    why="a step that drafts nothing would pay for the head inside its graph",
    upstream="none: vLLM's adaptive verification trims rows after drafting them all",
    remove_when="vLLM chooses the number of draft forwards from what requests accept",
    calls=("speculator",),
    since="0.29",
    variants=(
        Variant(
            anchor=Anchor(
                "AutoRegressiveSpeculator.capture",
                "self.on_prefill_end(self.max_num_reqs)",
            ),
            edit=Edit(Where.BEFORE, "_radiance_speculator.capture_headless(self)"),
            fingerprints={
                "0.29.0": "25baf1216af33c58",
                "0.30.0": "25baf1216af33c58",
                "0.31.0": "25baf1216af33c58",
            },
            file="v1/worker/gpu/spec_decode/autoregressive/speculator.py",
        ),
        Variant(
            anchor=Anchor(
                "TargetDependentARSpeculator.capture",
                "self.on_prefill_end(self.max_num_reqs)",
            ),
            edit=Edit(Where.BEFORE, "_radiance_speculator.capture_headless(self)"),
            fingerprints={
                "0.32.0": "7a538f7afa076cba",
                "0.33.0": "7a538f7afa076cba",
            },
        ),
    ),
)
