import pytest
from radiance_patch.hunks.v2_more_steps import HUNK

from tests.hunks import tools


@pytest.mark.parametrize("release", tools.between("0.29.0", "0.31.0"), ids=str)
def test_place_before_0_32(release):
    tools.check(
        HUNK,
        release,
        """
        class AutoRegressiveSpeculator:
            def _fused_multi_step_decode:
                if batch_desc.cg_mode == CUDAGraphMode.FULL:
                    self.decode_cudagraph_manager.run_fullgraph(batch_desc)
                  > _radiance_speculator.settled_steps(self, batch_desc)
                    return
        """,
    )


@pytest.mark.parametrize("release", tools.since("0.32.0"), ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class TargetDependentARSpeculator:
            def _fused_multi_step_decode:
                if batch_desc.cg_mode == CUDAGraphMode.FULL:
                    self.decode_cudagraph_manager.run_fullgraph(batch_desc)
                  > _radiance_speculator.more_steps(self, batch_desc, num_speculative_steps)
                    return
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
