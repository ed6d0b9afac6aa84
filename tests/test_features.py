import json

import pytest
from packaging.version import Version

from radiance_patch import features, registry
from tests.faults.sandbox import ok, small_tree, tool
from tests.real.releases import Release

HUNKS = registry.hunks()
WANTED = {"0.28.0": ["v1"]} | {f"0.{minor}.0": ["v1", "v2"] for minor in range(29, 34)}
# On V2 alone: the depth is live without them.
EXTRAS = {"short draft head": "head", "fused draft layers": "fused"}


def live(rows):
    return {row["name"]: row["runners"] for row in rows}


def all_on(runners):
    """Return what is live where every feature is on these runners, the extras on V2 alone."""
    return {
        feature.name: [name for name in runners if name != "v1"] if feature.name in EXTRAS else runners
        for feature in features.FEATURES
    }


@pytest.mark.parametrize("release", WANTED)
def test_the_runners_of_a_release(release):
    mine = registry.at(HUNKS, Version(release))
    assert live(features.rows(mine, {hunk.id for hunk in mine})) == all_on(WANTED[release])


@pytest.mark.parametrize(
    ("missing", "release"),
    [("v2_merge", "0.33.0"), ("depth_plan", "0.29.0"), ("v2_widths", "0.31.0"), ("v2_enough", "0.30.0")],
)
def test_a_hunk_that_is_missing_takes_its_runner_along(missing, release):
    mine = registry.at(HUNKS, Version(release))
    assert live(features.rows(mine, {hunk.id for hunk in mine} - {missing})) == all_on(["v1"])


@pytest.mark.parametrize("missing", [hunk.id for hunk in HUNKS if set(hunk.calls) & set(EXTRAS.values())])
def test_the_depth_is_live_without_its_extras(missing):
    placed = {hunk.id for hunk in HUNKS} - {missing}
    (without,) = (name for name, module in EXTRAS.items() if module in {h.id: h.calls for h in HUNKS}[missing])
    assert live(features.rows(HUNKS, placed)) == all_on(["v1", "v2"]) | {without: []}


def test_every_hunk_but_the_engine_s_belongs_to_a_feature():
    modules = {name for feature in features.FEATURES for needed in feature.modules.values() for name in needed}
    assert {hunk.id for hunk in HUNKS if not modules & set(hunk.calls)} == {"engine_report", "engine_settings"}


@pytest.mark.parametrize("release", ["0.28.0", "0.29.0", "0.33.0"])
def test_status_and_doctor_say_what_is_live(release, tmp_path):
    site = small_tree(tmp_path / "site", Release("vllm", release))
    before = json.loads(tool("status", "--json", site=site).out)
    assert live(before["features"]) == all_on([])
    ok("apply", site=site)
    after = json.loads(ok("status", "--json", site=site).out)
    assert live(after["features"]) == all_on(WANTED[release])
    assert (
        f"draft depth on {' and '.join(WANTED[release]).upper().replace('AND', 'and')}" in ok("status", site=site).out
    )
    told = tool("doctor", site=site).out
    assert ("nothing is live before vLLM 0.29" in told) == (release == "0.28.0")


def test_a_hunk_that_does_not_concern_a_release_is_no_choice_there(tmp_path):
    site = small_tree(tmp_path / "site", Release("vllm", "0.28.0"))
    refused = tool("apply", "--only", "v2_merge", site=site)
    assert (refused.exit, "vLLM 0.28.0 has nothing for v2_merge to patch" in refused.err) == (2, True)
    assert tool("status", site=site).exit == 3
