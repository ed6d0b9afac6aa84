import pytest
from radiance_patch.hunks.v2_begin import HUNK

from tests.hunks import tools


@pytest.mark.parametrize("release", tools.between("0.29.0", "0.30.0"), ids=str)
def test_place_before_0_31(release):
    tools.check(
        HUNK,
        release,
        """
        class GPUModelRunner:
            def execute_model:
                max_query_len = max(scheduler_output.num_scheduled_tokens.values())
              > _radiance_speculator.begin(self, scheduler_output, dummy_run)
                batch_req_state, uniform_tok_count = self.gather_batch_req_state(scheduler_output, dummy_run)
        """,
    )


@pytest.mark.parametrize("release", tools.since("0.31.0"), ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class GPUModelRunner:
            def execute_model:
                max_query_len: int | None = max(scheduler_output.num_scheduled_tokens.values())
              > _radiance_speculator.begin(self, scheduler_output, dummy_run)
                batch_req_state, uniform_tok_count = self.gather_batch_req_state(scheduler_output, dummy_run)
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
