import pytest
from radiance_patch.hunks.v2_first_pass import HUNK

from tests.hunks import tools


@pytest.mark.parametrize("release", tools.between("0.29.0", "0.31.0"), ids=str)
def test_place_before_0_32(release):
    tools.check(
        HUNK,
        release,
        """
        class AutoRegressiveSpeculator:
            def propose:
                num_tokens_across_dp = prefill_batch_sync.num_tokens_across_dp if prefill_batch_sync is not None else None
              > prefill_batch_desc = _radiance_speculator.first_pass(self, prefill_batch_desc)
                self._prepare_eplb_forward(num_tokens)
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
                num_tokens_across_dp = prefill_batch_sync.num_tokens_across_dp if prefill_batch_sync is not None else None
              > prefill_batch_desc = _radiance_speculator.first_pass(self, prefill_batch_desc)
                self._prepare_eplb_forward(num_tokens)
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
