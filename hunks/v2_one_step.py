"""Captures one draft step a graph instead of the whole loop."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/worker/gpu/spec_decode/target_dependent_ar/speculator.py",
    why="the graph of a loop can only be replayed whole",
    upstream="none: vLLM's adaptive verification trims rows after drafting them all",
    remove_when="vLLM chooses the number of draft forwards from what requests accept",
    calls=("speculator",),
    since="0.29",
    variants=(
        Variant(
            anchor=Anchor(
                "AutoRegressiveSpeculator.capture",
                "decode_fn = (\n"
                "    self._generate_fused_drafts if self.use_fused_multi_step_decode else self._generate_draft\n"
                ")",
            ),
            edit=Edit(Where.AFTER, "decode_fn = _radiance_speculator.one_step(self, decode_fn)"),
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
                "decode_fn = (\n"
                "    self._generate_fused_drafts if self.supports_decode_metadata_update else self._generate_draft\n"
                ")",
            ),
            edit=Edit(Where.AFTER, "decode_fn = _radiance_speculator.one_step(self, decode_fn)"),
            fingerprints={
                "0.32.0": "7a538f7afa076cba",
                "0.33.0": "7a538f7afa076cba",
            },
        ),
    ),
)
