"""Ships the plan with the step."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/core/sched/scheduler.py",
    why="ranks that decide by themselves can disagree and hang",
    upstream="none: vLLM's adaptive verification trims rows after drafting them all",
    remove_when="vLLM chooses the number of draft forwards from what requests accept",
    calls=("steps",),
    since="0.29",
    variants=(
        Variant(
            anchor=Anchor(
                "Scheduler._update_after_schedule",
                "self.finished_req_ids = set()",
            ),
            edit=Edit(Where.BEFORE, "_radiance_steps.ship(self, scheduler_output)"),
            fingerprints={
                "0.29.0": "cd0e1d22feae6ba8",
                "0.30.0": "cd0e1d22feae6ba8",
                "0.31.0": "02a3a8c38a5c3312",
                "0.32.0": "02a3a8c38a5c3312",
                "0.33.0": "02a3a8c38a5c3312",
            },
        ),
    ),
)
