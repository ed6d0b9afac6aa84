import pytest
from radiance_patch.hunks.proposer_sample import HUNK

from tests.hunks import tools
from tests.real.releases import RELEASES


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class SpecDecodeBaseProposer:
            def _greedy_sample:
                if self.use_heterogeneous_vocab: ...
              > if (_radiance := _radiance_draft.sample(self, hidden_states)) is not None:
              >     return _radiance
                return self.model.compute_logits(hidden_states).argmax(dim=-1)
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
