import pytest
from radiance_patch.hunks.proposer_begin import HUNK

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
                self.num_speculative_tokens = num_speculative_tokens
              > _radiance_draft.begin(self, num_speculative_tokens)
                self._last_draft_probs = None
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
