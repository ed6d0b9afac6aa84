import pytest
from radiance_patch.hunks.v2_merge import HUNK

from tests.hunks import tools


@pytest.mark.parametrize("release", tools.between("0.29.0", "0.31.0"), ids=str)
def test_place_before_0_32(release):
    tools.check(
        HUNK,
        release,
        """
        class GPUModelRunner:
            def sample_tokens:
                if self.speculator is not None:
                    with use_workspace_lane(self._draft_workspace_lane): ...
                  > _radiance_speculator.merge(self, input_batch, draft_tokens, num_sampled)
                    self.req_states.draft_tokens[input_batch.idx_mapping] = draft_tokens
        """,
    )


@pytest.mark.parametrize("release", tools.since("0.32.0"), ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class GPUModelRunner:
            def sample_tokens:
                if self.speculator is not None:
                    if num_spec_tokens < self.num_speculative_steps: ...
                  > _radiance_speculator.merge(self, input_batch, draft_tokens, num_sampled)
                    self.req_states.draft_tokens[input_batch.idx_mapping] = draft_tokens
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
