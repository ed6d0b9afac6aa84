"""Learns from a step's results, before they change the requests."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/core/sched/scheduler.py",
    why="what was accepted, and how long it took, is all a plan is made from",
    upstream="none: vLLM's adaptive verification trims rows after drafting them all",
    remove_when="vLLM chooses the number of draft forwards from what requests accept",
    calls=("steps",),
    since="0.29",
    variants=(
        Variant(
            anchor=Anchor(
                "Scheduler.update_from_output",
                "sampled_token_ids = model_runner_output.sampled_token_ids",
            ),
            edit=Edit(
                Where.AFTER,
                "_radiance_steps.learn(self, scheduler_output, sampled_token_ids, model_runner_output)",
            ),
            fingerprints={
                "0.29.0": "5fa8378512bf74d5",
                "0.30.0": "845387c1283e4eb4",
                "0.31.0": "f6dcf9ab5347608a",
                "0.32.0": "f6dcf9ab5347608a",
                "0.33.0": "f416fe27e7976851",
            },
        ),
    ),
)
