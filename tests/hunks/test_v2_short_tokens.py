import pytest
from radiance_patch.hunks.v2_short_tokens import HUNK

from tests.hunks import tools


@pytest.mark.parametrize("release", tools.between("0.29.0", "0.31.0"), ids=str)
def test_place_before_0_32(release):
    tools.check(
        HUNK,
        release,
        """
        class DraftModelSpeculator:
            def sample_draft:
              > if (_radiance := _radiance_head.short_tokens(self, hidden_states)) is not None:
              >     return _radiance
                if draft_logits is not None: ...
        """,
    )


@pytest.mark.parametrize("release", tools.since("0.32.0"), ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class DraftModelSpeculator:
            def sample_draft:
                if draft_logits is None and self.use_local_argmax_reduction: ...
              > if (_radiance := _radiance_head.short_tokens(self, hidden_states)) is not None:
              >     return _radiance
                logits = self.compute_draft_logits(hidden_states, spec_step_idx)
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
