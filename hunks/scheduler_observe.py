"""Tells the verify-width module how many drafts each request accepted."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/core/sched/scheduler.py",
    why="the width follows an average of accepted drafts, counted in this one place",
    upstream="none: vLLM's adaptive verification never follows what a request accepted",
    remove_when="vLLM caps verify rows by each request's acceptance on both runners",
    calls=("width",),
    variants=(
        Variant(
            anchor=Anchor("Scheduler.update_from_output", "num_rejected = num_draft_tokens - num_accepted"),
            edit=Edit(Where.AFTER, "_radiance_width.observe(self, scheduler_output, request, num_accepted)"),
            fingerprints={
                "0.27.1": "ced424a31f32fada",
                "0.28.0": "5987c474d6679746",
                "0.29.0": "5fa8378512bf74d5",
                "0.30.0": "845387c1283e4eb4",
                "0.31.0": "f6dcf9ab5347608a",
                "0.32.0": "f6dcf9ab5347608a",
                "0.33.0": "f416fe27e7976851",
            },
        ),
    ),
)
