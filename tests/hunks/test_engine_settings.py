import pytest
from radiance_patch.hunks.engine_settings import HUNK

from tests.hunks import tools


@pytest.mark.parametrize("release", tools.before("0.31.0"), ids=str)
def test_place_before_0_31(release):
    tools.check(
        HUNK,
        release,
        '''
        class EngineArgs:
            def create_engine_config:
                """..."""
              > _radiance_start.check()
                current_platform.pre_register_and_update()
        ''',
    )


@pytest.mark.parametrize("release", tools.since("0.31.0"), ids=str)
def test_place(release):
    tools.check(
        HUNK,
        release,
        """
        class EngineArgs:
            def create_engine_config:
                configure_logging_if_needed(logging_config)
              > _radiance_start.check()
                current_platform.pre_register_and_update()
        """,
    )


@pytest.mark.parametrize("change", tools.CHANGES)
def test_refused(change):
    tools.check_refused(HUNK, change)
