import pytest
from radiance_patch.hunks.proposer_attach import HUNK

from tests.hunks import tools
from tests.real.releases import RELEASES


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class SpecDecodeBaseProposer:
            def load_model:
                self.model = self._get_model()
              > _radiance_draft.attach(self)
                all_attn_layers = get_layers_from_vllm_config(self.vllm_config, AttentionLayerBase)
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
