import pytest
from radiance_patch.hunks.depth_ship import HUNK

from tests.hunks import tools


@pytest.mark.parametrize("release", tools.between("0.29.0", "0.30.0"), ids=str)
def test_place_before_0_31(release):
    tools.check(
        HUNK,
        release,
        """
        class Scheduler:
            def _update_after_schedule:
                if self.enable_return_routed_experts: ...
              > _radiance_steps.ship(self, scheduler_output)
                self.finished_req_ids = set()
        """,
    )


@pytest.mark.parametrize("release", tools.since("0.31.0"), ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class Scheduler:
            def _update_after_schedule:
                for req_id, num_scheduled_token in num_scheduled_tokens.items(): ...
              > _radiance_steps.ship(self, scheduler_output)
                self.finished_req_ids = set()
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
