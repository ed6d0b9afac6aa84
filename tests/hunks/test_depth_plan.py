import pytest
from radiance_patch.hunks.depth_plan import HUNK

from tests.hunks import tools


@pytest.mark.parametrize("release", tools.since("0.29.0"), ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class Scheduler:
            def schedule:
                self.current_step += 1
              > _radiance_steps.plan(self)
                scheduled_new_reqs: list[Request] = []
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
