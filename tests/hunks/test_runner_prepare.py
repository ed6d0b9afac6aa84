import pytest
from radiance_patch.hunks.runner_prepare import HUNK

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
                if spec_config.use_eagle() or spec_config.use_dflash() or spec_config.uses_draft_model():
                    if spec_decode_metadata is None: ...
                  > _radiance_draft.prepare(self, sampled_token_ids)
                    if self.supports_mm_inputs and self.drafter.supports_mm_inputs: ...
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
