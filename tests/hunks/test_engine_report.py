import pytest
from radiance_patch.hunks.engine_report import HUNK

from tests.hunks import tools
from tests.real.releases import RELEASES


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class EngineCore:
            def __init__:
                self.use_spec_decode = vllm_config.speculative_config is not None
              > _radiance_start.report(vllm_config)
                self.check_for_draft_tokens = self.use_spec_decode or vllm_config.model_config.is_diffusion
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
