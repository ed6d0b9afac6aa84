import pytest
from radiance_patch.hunks.v2_ar_settle import HUNK

from tests.hunks import tools


@pytest.mark.parametrize("release", tools.between("0.29.0", "0.31.0"), ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class AutoRegressiveSpeculator:
            def propose:
              > _radiance_speculator.settle(self, dummy_run)
                num_tokens = input_batch.num_tokens
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
