import pytest
from radiance_patch.hunks.proposer_note import HUNK

from tests.hunks import tools
from tests.real.releases import RELEASES


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_place(release):
    launched_by_grid = release.version in ("0.27.1", "0.28.0", "0.29.0")
    kernel = "eagle_prepare_next_token_padded_kernel[grid]" if launched_by_grid else "_eagle_prepare_next_token_padded"
    tools.check(
        HUNK,
        release,
        f"""
        class SpecDecodeBaseProposer:
            def prepare_next_token_ids_padded:
                {kernel}(...)
              > _radiance_draft.note(self, gpu_input_batch, sampled_token_ids, valid_sampled_tokens_count)
                return (next_token_ids, valid_sampled_tokens_count)
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
