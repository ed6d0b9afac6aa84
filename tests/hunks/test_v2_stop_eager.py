import pytest
from radiance_patch.hunks.v2_stop_eager import HUNK

from tests.hunks import tools


@pytest.mark.parametrize("release", tools.between("0.29.0", "0.31.0"), ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class AutoRegressiveSpeculator:
            def _generate_fused_drafts:
                for step in range(1, self.num_speculative_steps):
                  > if _radiance_speculator.enough(self, step):
                  >     break
                    self.current_draft_step.fill_(step)
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
