import pytest
from radiance_patch.hunks.v2_widths import HUNK

from tests.hunks import tools


@pytest.mark.parametrize("release", tools.between("0.29.0", "0.31.0"), ids=str)
def test_place_before_0_32(release):
    tools.check(
        HUNK,
        release,
        """
        class CudaGraphManager:
            def _init_candidates:
                if speculative_config and speculative_config.uses_dynamic_speculative_decoding(): ...
              > decode_query_lens = _radiance_graphs.widths(self, decode_query_lens)
                capture_varlen_decode = separate_decode_routine and bool(decode_mode) and self.varlen_decode
        """,
    )


@pytest.mark.parametrize("release", tools.since("0.32.0"), ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class CudaGraphManager:
            def _init_candidates:
                if speculative_config and speculative_config.uses_dynamic_speculative_decoding() and (self.decode_query_len > self.vllm_config.num_speculative_tokens): ...
              > decode_query_lens = _radiance_graphs.widths(self, decode_query_lens)
                capture_varlen_decode = separate_decode_routine and bool(decode_mode) and self.varlen_decode
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
