import pytest
from radiance_patch.hunks.v2_enough import HUNK

from tests.hunks import tools


@pytest.mark.parametrize("release", tools.between("0.29.0", "0.31.0"), ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class AutoRegressiveSpeculator:
            def propose:
                self.on_prefill_end(num_reqs)
              > if _radiance_speculator.enough(self):
              >     return self.draft_tokens[:num_reqs]
                if self.num_speculative_steps == 1: ...
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
