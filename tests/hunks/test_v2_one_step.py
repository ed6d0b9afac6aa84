import pytest
from radiance_patch.hunks.v2_one_step import HUNK

from tests.hunks import tools


@pytest.mark.parametrize("release", tools.between("0.29.0", "0.31.0"), ids=str)
def test_place_before_0_32(release):
    tools.check(
        HUNK,
        release,
        """
        class AutoRegressiveSpeculator:
            def capture:
                decode_fn = self._generate_fused_drafts if self.use_fused_multi_step_decode else self._generate_draft
              > decode_fn = _radiance_speculator.one_step(self, decode_fn)
                self.decode_cudagraph_manager.capture(...)
        """,
    )


@pytest.mark.parametrize("release", tools.since("0.32.0"), ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class TargetDependentARSpeculator:
            def capture:
                decode_fn = self._generate_fused_drafts if self.supports_decode_metadata_update else self._generate_draft
              > decode_fn = _radiance_speculator.one_step(self, decode_fn)
                self.decode_cudagraph_manager.capture(...)
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
