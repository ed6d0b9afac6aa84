import pytest
from radiance_patch.hunks.proposer_stop import HUNK

from tests.hunks import tools
from tests.real.releases import RELEASES


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class SpecDecodeBaseProposer:
            def propose:
                for token_index in range(self.num_speculative_tokens - 1):
                  > if _radiance_draft.stopped(self):
                  >     break
                    input_ids = draft_token_ids_list[-1].int()
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
