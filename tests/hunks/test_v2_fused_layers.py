import pytest
from radiance_patch.hunks.v2_fused_layers import HUNK

from tests.hunks import tools


@pytest.mark.parametrize("release", tools.since("0.29.0"), ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class DraftModelSpeculator:
            def load_model:
                self.model = self.load_draft_model(target_model, target_attn_layer_names)
              > _radiance_fused.fuse(self, target_model)
                self._validate_local_argmax_reduction()
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
