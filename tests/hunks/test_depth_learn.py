import pytest
from radiance_patch.hunks.depth_learn import HUNK

from tests.hunks import tools


@pytest.mark.parametrize("release", tools.since("0.29.0"), ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class Scheduler:
            def update_from_output:
                sampled_token_ids = model_runner_output.sampled_token_ids
              > _radiance_steps.learn(self, scheduler_output, sampled_token_ids, model_runner_output)
                logprobs = model_runner_output.logprobs
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
