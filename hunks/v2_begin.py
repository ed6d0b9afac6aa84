"""Hands the step's plan to the worker."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/worker/gpu/model_runner.py",
    why="every rank follows the plan that the scheduler shipped",
    upstream="none: vLLM's adaptive verification trims rows after drafting them all",
    remove_when="vLLM chooses the number of draft forwards from what requests accept",
    calls=("speculator",),
    since="0.29",
    variants=(
        Variant(
            anchor=Anchor(
                "GPUModelRunner.execute_model",
                "batch_req_state, uniform_tok_count = self.gather_batch_req_state(scheduler_output, dummy_run)",
            ),
            edit=Edit(Where.BEFORE, "_radiance_speculator.begin(self, scheduler_output, dummy_run)"),
            fingerprints={
                "0.29.0": "d985a4d25e4b64e3",
                "0.30.0": "9e7d2e8378ee2c62",
                "0.31.0": "a12863bef6728907",
                "0.32.0": "6f9aa17d89a32846",
                "0.33.0": "aee33dd01ab11c32",
            },
        ),
    ),
)
