"""Ends the first pass before its head where nothing is drafted from it."""

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
                "AutoRegressiveSpeculator._prefill",
                "sample_hidden_states = last_hidden_states[last_token_indices]",
            ),
            edit=Edit(Where.BEFORE, "if _radiance_speculator.headless(self):\n    return"),
            fingerprints={
                "0.29.0": "d751f0f2fa5f848e",
                "0.30.0": "30583109f7974c37",
                "0.31.0": "30583109f7974c37",
            },
            file="v1/worker/gpu/spec_decode/autoregressive/speculator.py",
        ),
        Variant(
            anchor=Anchor(
                "TargetDependentARSpeculator._prefill",
                "sample_hidden_states = last_hidden_states[last_token_indices]",
            ),
            edit=Edit(
                Where.BEFORE,
                "if _radiance_speculator.headless(self):\n    return",
            ),
            fingerprints={
                "0.32.0": "30583109f7974c37",
                "0.33.0": "98c3d52dd13c2e30",
            },
        ),
    ),
)
