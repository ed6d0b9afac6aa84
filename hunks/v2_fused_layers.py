"""Lets the draft model's layers use fused kernels as soon as its weights are there."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/worker/gpu/spec_decode/speculator.py",
    why="layers that nothing compiles are a third of a draft forward",
    upstream="none: vLLM leaves norms and rotary embeddings to torch.compile, which many draft models do without",
    remove_when="vLLM compiles every draft model, or fuses the layers of those that it does not",
    calls=("fused",),
    since="0.29",
    variants=(
        Variant(
            anchor=Anchor(
                "DraftModelSpeculator.load_model",
                "self._validate_local_argmax_reduction()",
            ),
            edit=Edit(Where.BEFORE, "_radiance_fused.fuse(self, target_model)"),
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
