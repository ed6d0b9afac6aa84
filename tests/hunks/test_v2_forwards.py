import pytest
from radiance_patch.hunks.v2_forwards import HUNK

from tests.hunks import tools


@pytest.mark.parametrize("release", tools.between("0.29.0", "0.31.0"), ids=str)
def test_place_before_0_32(release):
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


@pytest.mark.parametrize("release", tools.since("0.32.0"), ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class TargetDependentARSpeculator:
            def propose:
                if num_speculative_tokens is None: ...
              > num_speculative_tokens = _radiance_speculator.forwards(self, num_speculative_tokens, dummy_run)
                num_tokens = input_batch.num_tokens
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
