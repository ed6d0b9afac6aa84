"""Says how many draft forwards the step makes."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/worker/gpu/spec_decode/target_dependent_ar/speculator.py",
    why="a forward that nobody needs is not launched",
    upstream="none: vLLM's adaptive verification trims rows after drafting them all",
    remove_when="vLLM chooses the number of draft forwards from what requests accept",
    calls=("speculator",),
    since="0.29",
    variants=(
        Variant(
            anchor=Anchor(
                "AutoRegressiveSpeculator.propose",
                "num_tokens = input_batch.num_tokens",
            ),
            edit=Edit(Where.BEFORE, "_radiance_speculator.settle(self, dummy_run)"),
            fingerprints={
                "0.29.0": "231b54904bdf1954",
                "0.30.0": "5f9b29da53bd1555",
                "0.31.0": "d0ae274a6fe6ac35",
            },
            file="v1/worker/gpu/spec_decode/autoregressive/speculator.py",
        ),
        Variant(
            anchor=Anchor(
                "TargetDependentARSpeculator.propose",
                "num_tokens = input_batch.num_tokens",
            ),
            edit=Edit(
                Where.BEFORE,
                "num_speculative_tokens = _radiance_speculator.forwards(self, num_speculative_tokens, dummy_run)",
            ),
            fingerprints={
                "0.32.0": "a14e5a20fbd898f2",
                "0.33.0": "2db68ac427f94523",
            },
        ),
    ),
)
