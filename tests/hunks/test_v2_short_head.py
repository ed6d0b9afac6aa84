import pytest
from radiance_patch.hunks.v2_short_head import HUNK

from tests.hunks import tools


@pytest.mark.parametrize("release", tools.between("0.29.0", "0.30.0"), ids=str)
def test_place_before_0_31(release):
    tools.check(
        HUNK,
        release,
        """
        class DraftModelSpeculator:
            def load_model:
                self._validate_local_argmax_reduction()
              > _radiance_head.shorten(self)
                all_attn_layers = set[str](get_layers_from_vllm_config(self.vllm_config, AttentionLayerBase).keys())
        """,
    )


@pytest.mark.parametrize("release", tools.since("0.31.0"), ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class DraftModelSpeculator:
            def load_model:
                self._validate_local_argmax_reduction()
              > _radiance_head.shorten(self)
                all_attn_layers = get_layers_from_vllm_config(self.vllm_config, AttentionLayerBase)
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
