import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from radiance_patch.kernels import settings

ALL = {setting.name: setting for setting in settings.SETTINGS}


def test_defaults():
    assert settings.read({}) == settings.Settings(
        dynamic_width=False,
        alpha=0.35,
        margin=2,
        floor=2,
        min_batch=5,
        dynamic_draft=True,
        tau=0.28,
        schedule=((1, 8), (2, 7), (4, 6), (8, 5), (16, 4)),
        draft_vocabulary=32768,
        fused_draft=True,
        log_seconds=60.0,
    )


# A digit to int and float, but nothing that anyone means to type here.
OTHER_ONE = "\N{ARABIC-INDIC DIGIT ONE}"

# Values without the form asked for, then values with it and what they are read as.
CASES = {
    "RADIANCE_DYNAMIC_WIDTH": (["2", "true", "yes", "01", "-1", "0.0"], {"0": False, "1": True, " 1 ": True}),
    "RADIANCE_DYNW_ALPHA": (
        [
            "0",
            "0.0",
            "-0.1",
            "1.01",
            "nan",
            "inf",
            "1e5",
            "a",
            "0,5",
            "0_1",
            "0.3.5",
            OTHER_ONE,
            "1/2",
        ],
        {"1": 1.0, "0.5": 0.5, "1e-3": 0.001, ".25": 0.25, "1.0": 1.0},
    ),
    "RADIANCE_DYNW_MARGIN": (
        ["-1", "65", "1.0", "1e1", "+3", "two", "1_0", OTHER_ONE],
        {"0": 0, "64": 64, "07": 7},
    ),
    "RADIANCE_DYNW_MIN": (["0", "65", "-2", "1.5"], {"1": 1, "64": 64}),
    "RADIANCE_DYNW_MIN_BATCH": (["0", "65537", "9" * 5000], {"1": 1, "65536": 65536}),
    "RADIANCE_DYNAMIC_DRAFT": (["on", "3"], {"0": False, "1": True}),
    "RADIANCE_DRAFT_TAU": (["-0.01", "1.01", "nan", "high"], {"0": 0.0, "1": 1.0, "0.28": 0.28}),
    "RADIANCE_DRAFT_SCHEDULE": (
        [
            "1",
            "1:",
            ":8",
            "1:0",
            "0:8",
            "1:8:2",
            "1:8;2:7",
            "1:8,1:7",
            "1:8,",
            ",1:8",
            "1:8,,2:7",
            ",",
            "a:b",
            "1:4097",
        ],
        {"": (), "  ": (), "1:8": ((1, 8),), "4:6, 1:8": ((1, 8), (4, 6)), "4096:4096": ((4096, 4096),)},
    ),
    "RADIANCE_DRAFT_VOCAB": (["1", "1023", "1048577", "-1", "32k"], {"0": 0, "1024": 1024, "1048576": 1 << 20}),
    "RADIANCE_DRAFT_FUSED": (["on", "2"], {"0": False, "1": True}),
    "RADIANCE_DRAFT_LOG_SECONDS": (["-1", "86401", "nan", "1m"], {"0": 0.0, "0.5": 0.5, "86400": 86400.0}),
}


def test_every_setting_has_its_cases():
    assert CASES.keys() == ALL.keys()
    fields = [field for field in dataclasses.fields(settings.Settings) if field.compare]
    assert len(settings.SETTINGS) == len(ALL) == len(fields)


def test_what_the_environment_gives_is_told_from_a_default():
    given = settings.read(
        {"RADIANCE_DYNAMIC_DRAFT": "1", "RADIANCE_DYNW_ALPHA": "", "RADIANCE_DRAFT_SCHEDULE": ""}
    ).given
    assert given == {"RADIANCE_DYNAMIC_DRAFT", "RADIANCE_DRAFT_SCHEDULE"}


@pytest.mark.parametrize(
    ("batch", "depth"), [(1, 8), (2, 7), (3, 7), (4, 6), (7, 6), (8, 5), (15, 5), (16, 4), (500, 4)]
)
def test_the_default_schedule(batch, depth):
    assert settings.read({}).depth_cap(batch) == depth


@pytest.mark.parametrize(("text", "depth"), [("", settings.NO_CAP), ("4:3", 3)])
def test_schedules_without_a_cap_or_an_entry_for_one(text, depth):
    assert settings.read({"RADIANCE_DRAFT_SCHEDULE": text}).depth_cap(1) == depth


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, (bad, _) in CASES.items() for text in bad])
def test_malformed_value(name, text):
    with pytest.raises(settings.SettingsError) as caught:
        settings.read({name: text})
    assert str(caught.value) == f"radiance-patch: {name}={text!r}: expected {ALL[name].form}"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, (_, good) in CASES.items() for text in good])
def test_value(name, text):
    field = dataclasses.fields(settings.Settings)[list(ALL).index(name)].name
    expected = dataclasses.replace(settings.read({}), **{field: CASES[name][1][text]})
    assert settings.read({name: text}) == expected


@pytest.mark.parametrize("name", [name for name in ALL if name != "RADIANCE_DRAFT_SCHEDULE"])
@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_value_is_the_default(name, text):
    assert settings.read({name: text}) == settings.read({})


def test_defaults_have_their_own_form():
    assert settings.read({setting.name: setting.default for setting in settings.SETTINGS}) == settings.read({})


@given(st.sampled_from(settings.SETTINGS), st.text())
def test_any_text_is_read_or_refused_in_one_line(setting, text):
    try:
        setting.read({setting.name: text})
        said = "nothing"
    except settings.SettingsError as error:
        said = str(error)
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("RADIANCE_DYNAMIC_WITDH", "RADIANCE_DYNAMIC_WIDTH"),
        ("RADIANCE_DYNW_MINBATCH", "RADIANCE_DYNW_MIN_BATCH"),
        ("RADIANCE_ALPHA", "RADIANCE_DYNW_ALPHA"),
        ("RADIANCE_PATCHES", None),
        ("RADIANCE_", None),
    ],
)
def test_unknown_name(name, near):
    (line,) = settings.complaints({name: "1"})
    start = f"radiance-patch: {name} is no variable of radiance-patch; did you mean RADIANCE_"
    assert line.startswith(start)
    assert near is None or line == f"{start.removesuffix('RADIANCE_')}{near}?"
    assert line.rpartition(" ")[2].removesuffix("?") in ALL


@pytest.mark.parametrize("name", ["RADIANCE_PATCH_CACHE", "RADIANCE", "radiance_dynw_min", "MY_RADIANCE_X", "VLLM_X"])
def test_names_of_others_are_none_of_its_business(name):
    assert settings.complaints({name: "x"}) == []


def test_known_names_are_no_complaint():
    assert settings.complaints(dict.fromkeys(ALL, "1")) == []


def test_current_is_read_once(monkeypatch):
    settings.current.cache_clear()
    monkeypatch.setenv("RADIANCE_DYNW_MARGIN", "7")
    try:
        first = settings.current()
        monkeypatch.setenv("RADIANCE_DYNW_MARGIN", "9")
        assert settings.current() is first
        assert first.margin == 7
    finally:
        settings.current.cache_clear()
