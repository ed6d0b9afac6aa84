import pytest
from radiance_patch.hunks.scheduler_observe import HUNK

from tests.hunks import tools
from tests.real.releases import RELEASES


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class Scheduler:
            def update_from_output:
                for req_id, num_tokens_scheduled in num_scheduled_tokens.items():
                    if scheduled_spec_token_ids and (generated_token_ids or self.num_sampled_tokens_per_step == 0):
                        num_rejected = num_draft_tokens - num_accepted
                      > _radiance_width.observe(self, scheduler_output, request, num_accepted)
                        if not output_is_stale: ...
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
