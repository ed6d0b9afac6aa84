"""Checks the RADIANCE_* settings before an engine is built."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="engine/arg_utils.py",
    why="a wrong setting must stop the start, not a request",
    upstream="none: the settings are ours",
    remove_when="radiance-patch has no settings",
    calls=("start",),
    variants=(
        Variant(
            anchor=Anchor("EngineArgs.create_engine_config", "current_platform.pre_register_and_update()"),
            edit=Edit(Where.BEFORE, "_radiance_start.check()"),
            fingerprints={
                "0.27.1": "f3bb12b81c368496",
                "0.28.0": "9f73b915146eb1f9",
                "0.29.0": "044901e2ad212c66",
                "0.30.0": "db04cc143979668d",
                "0.31.0": "fbdabcd728382883",
                "0.32.0": "afda7e1516970ce2",
                "0.33.0": "ce701527aa1124cb",
            },
        ),
    ),
)
