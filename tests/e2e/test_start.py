"""What a start says and refuses, and that no overlay reaches the engine beneath it."""

import pytest

from tests.real import cache, demo
from tests.real import engine as real
from tests.real.jobs import ON, SHORT
from tests.real.tree import changes

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]


@pytest.mark.parametrize("multiprocessing", ["0", "1"])
def test_a_malformed_setting_stops_the_start_with_one_line(engine, patched, multiprocessing):
    settings = {"RADIANCE_DYNW_ALPHA": "abc", "VLLM_ENABLE_V1_MULTIPROCESSING": multiprocessing}
    with pytest.raises(cache.HarnessError, match="ended with exit code 1") as stopped:
        real.serve(engine, SHORT, site=patched, env=ON | settings)
    (line,) = (line for line in str(stopped.value).splitlines() if "RADIANCE_DYNW_ALPHA" in line)
    assert line.endswith("RADIANCE_DYNW_ALPHA='abc': expected a number above 0, at most 1")
    assert "Loading" not in str(stopped.value)


def test_patching_and_serving_an_overlay_leaves_the_engine_as_it_was(engine):
    before = real.vllm_fingerprint(engine.site)
    with real.patched_overlay(engine) as site:
        overlaid = changes(before, real.vllm_fingerprint(site))
        served = real.serve(engine, SHORT, site=site, env=ON)
    assert any("_radiance" in line for line in overlaid)
    assert served.draft_tokens > 0
    assert changes(before, real.vllm_fingerprint(engine.site)) == []


def test_reverting_an_overlay_leaves_what_the_engine_holds(engine):
    with real.patched_overlay(engine) as site:
        real.patch("revert", "--target", site)
        reverted, own = (real.vllm_fingerprint(folder) for folder in (site, engine.site))
    inside = {path: entry for path, entry in own.items() if path.startswith(real.PACKAGES)}
    assert changes(inside, reverted) == []


def test_an_interrupted_demo_takes_the_patch_out(engine):
    before = real.vllm_fingerprint(engine.site)

    def interrupted() -> None:
        with demo.patched(engine):
            assert changes(before, real.vllm_fingerprint(engine.site)) != []
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert changes(before, real.vllm_fingerprint(engine.site)) == []
