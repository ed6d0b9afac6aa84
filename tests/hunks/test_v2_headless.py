import pytest
from radiance_patch.hunks.v2_headless import HUNK

from tests.hunks import tools

BEFORE = {"0.32.0": "if self.pcp_manager is not None: ...", "0.33.0": "if skip_sample: ..."}


@pytest.mark.parametrize("release", tools.since("0.32.0"), ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        f"""
        class TargetDependentARSpeculator:
            def _prefill:
                {BEFORE[release.version]}
              > if _radiance_speculator.headless(self):
              >     return
                sample_hidden_states = last_hidden_states[last_token_indices]
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
