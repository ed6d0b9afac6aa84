import pytest
from radiance_patch.hunks.async_scheduler_cap import HUNK

from tests.hunks import tools
from tests.real.releases import RELEASES


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class AsyncScheduler:
            def _update_after_schedule:
                for req_id in scheduler_output.num_scheduled_tokens: ...
              > _radiance_width.cap_batch(self, scheduler_output)
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
