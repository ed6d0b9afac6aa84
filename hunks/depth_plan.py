"""Plans a step's rows and draft forwards before it is scheduled."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/core/sched/scheduler.py",
    why="rows are chosen last, when the most is known",
    upstream="none: vLLM's adaptive verification trims rows after drafting them all",
    remove_when="vLLM chooses the number of draft forwards from what requests accept",
    calls=("steps",),
    since="0.29",
    variants=(
        Variant(
            anchor=Anchor(
                "Scheduler.schedule",
                "scheduled_new_reqs: list[Request] = []",
            ),
            edit=Edit(Where.BEFORE, "_radiance_steps.plan(self)"),
            fingerprints={
                "0.29.0": "027045e982128298",
                "0.30.0": "18627e8ef7a5667b",
                "0.31.0": "f8c4507344ec1536",
                "0.32.0": "0f64cfe7557d8e2e",
                "0.33.0": "09508e24721f2efb",
            },
        ),
    ),
)
