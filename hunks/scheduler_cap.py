"""Caps each request's drafts where synchronous scheduling hands them to the scheduler."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/core/sched/scheduler.py",
    why="the drafts kept here are the rows the next step verifies",
    upstream="none: vLLM's adaptive verification never follows what a request accepted",
    remove_when="vLLM caps verify rows by each request's acceptance on both runners",
    calls=("width",),
    variants=(
        Variant(
            anchor=Anchor(
                "Scheduler.update_draft_token_ids",
                "for req_id, spec_token_ids in zip(draft_token_ids.req_ids, draft_token_ids.draft_token_ids): ...",
            ),
            edit=Edit(Where.AFTER, "_radiance_width.cap_batch(self)"),
            fingerprints={
                "0.27.1": "d1dc53e58e5b21f0",
                "0.28.0": "d1dc53e58e5b21f0",
                "0.29.0": "d1dc53e58e5b21f0",
                "0.30.0": "fc36a62e2d3d74f0",
                "0.31.0": "fc36a62e2d3d74f0",
                "0.32.0": "fc36a62e2d3d74f0",
                "0.33.0": "fc36a62e2d3d74f0",
            },
        ),
    ),
)
