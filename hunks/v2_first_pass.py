"""Replays the first pass's graph without a head where nothing is drafted."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/worker/gpu/spec_decode/target_dependent_ar/speculator.py",
    why="the head is most of what drafting nothing would cost",
    upstream="none: vLLM's adaptive verification trims rows after drafting them all",
    remove_when="vLLM chooses the number of draft forwards from what requests accept",
    calls=("speculator",),
    since="0.29",
    variants=(
        Variant(
            anchor=Anchor(
                "AutoRegressiveSpeculator.propose",
                "self._prepare_eplb_forward(num_tokens)",
            ),
            edit=Edit(Where.BEFORE, "prefill_batch_desc = _radiance_speculator.first_pass(self, prefill_batch_desc)"),
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
                "self._prepare_eplb_forward(num_tokens)",
            ),
            edit=Edit(Where.BEFORE, "prefill_batch_desc = _radiance_speculator.first_pass(self, prefill_batch_desc)"),
            fingerprints={
                "0.32.0": "a14e5a20fbd898f2",
                "0.33.0": "2db68ac427f94523",
            },
        ),
    ),
)
