import pytest
from radiance_patch.hunks.v2_headless import HUNK

from tests.hunks import tools


@pytest.mark.parametrize("release", tools.between("0.29.0", "0.29.0"), ids=str)
def test_place_before_0_30(release):
    tools.check(
        HUNK,
        release,
        """
        class AutoRegressiveSpeculator:
            def _prefill:
                last_hidden_states, hidden_states = self._run_model(num_tokens, attn_metadata, slot_mappings, num_tokens_across_dp=num_tokens_across_dp, cudagraph_runtime_mode=cudagraph_runtime_mode, mm_inputs=mm_inputs)
              > if _radiance_speculator.headless(self):
              >     return
                sample_hidden_states = last_hidden_states[last_token_indices]
        """,
    )


@pytest.mark.parametrize("release", tools.between("0.30.0", "0.31.0"), ids=str)
def test_place_before_0_32(release):
    tools.check(
        HUNK,
        release,
        """
        class AutoRegressiveSpeculator:
            def _prefill:
                if self.pcp_manager is not None: ...
              > if _radiance_speculator.headless(self):
              >     return
                sample_hidden_states = last_hidden_states[last_token_indices]
        """,
    )


@pytest.mark.parametrize("release", tools.between("0.32.0", "0.32.0"), ids=str)
def test_place_before_0_33(release):
    tools.check(
        HUNK,
        release,
        """
        class TargetDependentARSpeculator:
            def _prefill:
                if self.pcp_manager is not None: ...
              > if _radiance_speculator.headless(self):
              >     return
                sample_hidden_states = last_hidden_states[last_token_indices]
        """,
    )


@pytest.mark.parametrize("release", tools.since("0.33.0"), ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class TargetDependentARSpeculator:
            def _prefill:
                if skip_sample: ...
              > if _radiance_speculator.headless(self):
              >     return
                sample_hidden_states = last_hidden_states[last_token_indices]
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
