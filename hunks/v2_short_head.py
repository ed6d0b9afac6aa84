"""Makes the draft model's short head as soon as its weights are there."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/worker/gpu/spec_decode/speculator.py",
    why="its memory must be there before vLLM sizes the KV cache",
    upstream="none: vLLM quantizes the draft head, and reads all of it",
    remove_when="vLLM drafts from a part of the vocabulary",
    calls=("head",),
    since="0.29",
    variants=(
        Variant(
            anchor=Anchor(
                "DraftModelSpeculator.load_model",
                "self._validate_local_argmax_reduction()",
            ),
            edit=Edit(Where.AFTER, "_radiance_head.shorten(self)"),
            fingerprints={
                "0.29.0": "13a665640fa96fcf",
                "0.30.0": "33c5a5454092e22b",
                "0.31.0": "145757409f68407b",
                "0.32.0": "145757409f68407b",
                "0.33.0": "145757409f68407b",
            },
        ),
    ),
)
