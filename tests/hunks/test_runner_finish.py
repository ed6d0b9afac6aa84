import pytest
from radiance_patch.hunks.runner_finish import HUNK

from tests.hunks import tools
from tests.real.releases import RELEASES


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class GPUModelRunner:
            def propose_draft_token_ids:
                if spec_config.method == 'ngram': ...
              > draft_token_ids = _radiance_draft.finish(self, draft_token_ids)
                return draft_token_ids
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
