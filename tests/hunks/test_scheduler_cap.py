import pytest
from radiance_patch.hunks.scheduler_cap import HUNK

from tests.hunks import tools
from tests.real.releases import RELEASES


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class Scheduler:
            def update_draft_token_ids:
                for req_id, spec_token_ids in zip(draft_token_ids.req_ids, draft_token_ids.draft_token_ids): ...
              > _radiance_width.cap_batch(self)
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
