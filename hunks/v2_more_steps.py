"""Replays the one-step graph for the further draft steps."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/worker/gpu/spec_decode/target_dependent_ar/speculator.py",
    why="a graph of one step serves any depth",
    upstream="none: vLLM's adaptive verification trims rows after drafting them all",
    remove_when="vLLM chooses the number of draft forwards from what requests accept",
    calls=("speculator",),
    since="0.29",
    variants=(
        Variant(
            anchor=Anchor(
                "AutoRegressiveSpeculator._fused_multi_step_decode",
                "self.decode_cudagraph_manager.run_fullgraph(batch_desc)",
            ),
            edit=Edit(Where.AFTER, "_radiance_speculator.settled_steps(self, batch_desc)"),
            fingerprints={
                "0.29.0": "0cc21171df716f8d",
                "0.30.0": "e19016909370a1c1",
                "0.31.0": "e19016909370a1c1",
            },
            file="v1/worker/gpu/spec_decode/autoregressive/speculator.py",
        ),
        Variant(
            anchor=Anchor(
                "TargetDependentARSpeculator._fused_multi_step_decode",
                "self.decode_cudagraph_manager.run_fullgraph(batch_desc)",
            ),
            edit=Edit(Where.AFTER, "_radiance_speculator.more_steps(self, batch_desc, num_speculative_steps)"),
            fingerprints={
                "0.32.0": "46a111fc2e3d3b9e",
                "0.33.0": "46a111fc2e3d3b9e",
            },
        ),
    ),
)
