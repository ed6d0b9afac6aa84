import pytest
from radiance_patch.hunks.v2_capture_headless import HUNK

from tests.hunks import tools


@pytest.mark.parametrize("release", tools.between("0.29.0", "0.31.0"), ids=str)
def test_place_before_0_32(release):
    tools.check(
        HUNK,
        release,
        """
        class AutoRegressiveSpeculator:
            def capture:
                self.prefill_cudagraph_manager.capture(...)
              > _radiance_speculator.capture_headless(self)
                self.on_prefill_end(self.max_num_reqs)
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
                self.prefill_cudagraph_manager.capture(...)
              > _radiance_speculator.capture_headless(self)
                self.on_prefill_end(self.max_num_reqs)
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
