import logging
import os
from types import SimpleNamespace

import pytest
from radiance_patch.kernels import settings, start

DRAFT_OFF = "draft depth is off (RADIANCE_DYNAMIC_DRAFT is 0)"
V1 = "draft depth on the V1 runner: the worker's line says"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """No setting of the person who runs the tests has a say, and none of a test outlives it."""
    for name in [name for name in os.environ if name.startswith("RADIANCE_")]:
        monkeypatch.delenv(name)
    settings.current.cache_clear()
    yield
    settings.current.cache_clear()


def config(drafts, mode=None, largest=None, runner="v1"):
    """What `describe` reads of a configuration. The real ones are covered where a real vLLM is."""
    return SimpleNamespace(
        speculative_config=SimpleNamespace(enable_adaptive_verification=False) if drafts else None,
        num_speculative_tokens=drafts,
        use_v2_model_runner=runner == "v2",
        compilation_config=SimpleNamespace(cudagraph_mode=mode, max_cudagraph_capture_size=largest),
    )


def test_check_accepts_what_is_right(monkeypatch, caplog):
    monkeypatch.setenv("RADIANCE_DYNAMIC_WIDTH", "1")
    monkeypatch.setenv("RADIANCE_PATCH_CACHE", "anywhere")
    start.check()
    assert caplog.records == []


def test_check_stops_the_start(monkeypatch):
    monkeypatch.setenv("RADIANCE_DYNW_ALPHA", "2")
    message = r"^radiance-patch: RADIANCE_DYNW_ALPHA='2': expected a number above 0, at most 1$"
    with pytest.raises(settings.SettingsError, match=message):
        start.check()


def test_check_looks_at_what_is_set_now(monkeypatch):
    """A process may build several engines."""
    start.check()
    monkeypatch.setenv("RADIANCE_DYNW_MIN", "0")
    with pytest.raises(settings.SettingsError):
        start.check()


def test_check_warns_of_unknown_names(monkeypatch, caplog):
    monkeypatch.setenv("RADIANCE_DYNW_%s", "1")
    start.check()
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("vllm.radiance", logging.WARNING)
    assert record.getMessage().startswith("radiance-patch: RADIANCE_DYNW_%s is no variable of radiance-patch")


def test_report_is_one_line(caplog):
    with caplog.at_level(logging.INFO, "vllm.radiance"):
        start.report(config(4))
    assert [record.getMessage() for record in caplog.records] == [
        f"radiance-patch: dynamic verify width is off (RADIANCE_DYNAMIC_WIDTH is 0); {V1}"
    ]


def test_describe_without_speculation(monkeypatch):
    monkeypatch.setenv("RADIANCE_DYNAMIC_WIDTH", "1")
    assert start.describe(config(0)) == "nothing is live: the engine does not speculate"


def test_describe_what_is_live(monkeypatch):
    monkeypatch.setenv("RADIANCE_DYNAMIC_WIDTH", "1")
    monkeypatch.setenv("RADIANCE_DYNW_MARGIN", "1")
    values = "alpha 0.35, margin 1, floor 2, from 5 running requests on"
    assert start.describe(config(4)) == f"dynamic verify width is live ({values}); {V1}"


def test_describe_a_depth_that_is_off(monkeypatch):
    monkeypatch.setenv("RADIANCE_DYNAMIC_DRAFT", "0")
    assert start.describe(config(4)).endswith(DRAFT_OFF)


@pytest.mark.parametrize(
    ("largest", "where"),
    [(512, "from 103 running requests on"), (510, "from 103 running requests on"), (None, "nowhere")],
)
def test_describe_where_graphs_are_in_the_way(monkeypatch, largest, where):
    monkeypatch.setenv("RADIANCE_DYNAMIC_WIDTH", "1")
    mode = SimpleNamespace(decode_mode=lambda: SimpleNamespace(name="FULL"), separate_routine=lambda: True)
    text = start.describe(config(4, mode, largest))
    assert f"but caps {where}: below, decode runs in FULL CUDA graphs that exist for 4 drafts alone" in text
    assert "\n" not in text
