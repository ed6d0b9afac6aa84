"""Logs at engine start what is live, or why it is not."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/engine/core.py",
    why="a patch that does nothing without saying so is the most reported fault of its kind",
    upstream="none: the features are ours",
    remove_when="radiance-patch has no features",
    calls=("start",),
    variants=(
        Variant(
            anchor=Anchor("EngineCore.__init__", "self.use_spec_decode = vllm_config.speculative_config is not None"),
            edit=Edit(Where.AFTER, "_radiance_start.report(vllm_config)"),
            fingerprints={
                "0.27.1": "0573510887ac8d20",
                "0.28.0": "e86d7bdf84ae8dcb",
                "0.29.0": "e86d7bdf84ae8dcb",
                "0.30.0": "e86d7bdf84ae8dcb",
                "0.31.0": "0de2d4d3477e45e2",
                "0.32.0": "84e440577e7f4d44",
                "0.33.0": "5cf6a08fbd5ce13c",
            },
        ),
    ),
)
