import pytest
from radiance_patch.hunks.v2_candidates import HUNK

from tests.hunks import tools


@pytest.mark.parametrize("release", tools.since("0.29.0"), ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class CudaGraphManager:
            def _init_candidates:
                for mode in (CUDAGraphMode.FULL, CUDAGraphMode.PIECEWISE): ...
              > _radiance_graphs.order(self)
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
