"""Caps each request's placeholders under async scheduling, which never calls update_draft_token_ids."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/core/sched/async_scheduler.py",
    why="all requests are given one shared placeholder list, whose length is the rows the next step verifies",
    upstream="none: vLLM's adaptive verification never follows what a request accepted",
    remove_when="vLLM caps verify rows by each request's acceptance on both runners",
    calls=("width",),
    variants=(
        Variant(
            anchor=Anchor(
                "AsyncScheduler._update_after_schedule",
                "for req_id in scheduler_output.num_scheduled_tokens: ...",
            ),
            edit=Edit(Where.AFTER, "_radiance_width.cap_batch(self, scheduler_output)"),
            fingerprints={
                "0.27.1": "2639ac5ae9d101d3",
                "0.28.0": "2639ac5ae9d101d3",
                "0.29.0": "2639ac5ae9d101d3",
                "0.30.0": "2639ac5ae9d101d3",
                "0.31.0": "b0b64540f11e2325",
                "0.32.0": "b0b64540f11e2325",
                "0.33.0": "b0b64540f11e2325",
            },
        ),
    ),
)
