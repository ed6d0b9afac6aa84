import pytest
from radiance_patch.hunks.v2_context import HUNK

from tests.hunks import tools


@pytest.mark.parametrize("release", tools.between("0.29.0", "0.31.0"), ids=str)
def test_place_before_0_32(release):
    tools.check(
        HUNK,
        release,
        """
        class GPUModelRunner:
            def __init__:
                self.req_states = RequestState(max_num_reqs=self.max_num_reqs, max_model_len=self.max_model_len, max_num_batched_tokens=self.max_num_tokens, num_speculative_steps=self.num_speculative_steps, vocab_size=self.vocab_size, device=self.device, num_prefill_lookahead=num_prefill_lookahead)
              > _radiance_speculator.keep_tokens(self)
                self.adaptive_verification: AdaptiveVerificationManager | None = None
        """,
    )


@pytest.mark.parametrize("release", tools.since("0.32.0"), ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class GPUModelRunner:
            def __init__:
                use_dense_all_token_ids = self.speculative_config is not None and self.speculative_config.use_ngram()
              > use_dense_all_token_ids = _radiance_speculator.dense(self, use_dense_all_token_ids)
                self.req_states = RequestState(max_num_reqs=self.max_num_reqs, max_model_len=self.max_model_len, max_num_batched_tokens=self.max_num_tokens, num_speculative_steps=self.num_speculative_steps, vocab_size=self.vocab_size, device=self.device, num_prefill_lookahead=num_prefill_lookahead, use_dense_all_token_ids=use_dense_all_token_ids)
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
