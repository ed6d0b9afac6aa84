"""Merges the verbatim continuations into the drafts, before anything else reads them."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/worker/gpu/model_runner.py",
    why="later, the grammar and the next step would see other drafts than are verified",
    upstream="none: nobody drafts from the context and the drafter at once",
    remove_when="vLLM merges n-gram continuations into a drafter's proposals on the V2 runner",
    calls=("speculator",),
    since="0.29",
    variants=(
        Variant(
            anchor=Anchor(
                "GPUModelRunner.sample_tokens",
                "self.req_states.draft_tokens[input_batch.idx_mapping] = draft_tokens",
            ),
            edit=Edit(Where.BEFORE, "_radiance_speculator.merge(self, input_batch, draft_tokens, num_sampled)"),
            fingerprints={
                "0.29.0": "bd2c47fefff35a6c",
                "0.30.0": "3d2931fca666288a",
                "0.31.0": "08c7b56fa129674a",
                "0.32.0": "23675c7038285ac6",
                "0.33.0": "791cd01a0c955a8f",
            },
        ),
    ),
)
