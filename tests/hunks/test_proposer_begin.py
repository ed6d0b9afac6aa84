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
                batch_size = common_attn_metadata.batch_size()
              > _radiance_draft.begin(self, num_speculative_tokens, batch_size)
                if self.method in ('eagle3', 'dflash'): ...
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
