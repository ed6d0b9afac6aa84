import errno
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from packaging.version import Version

from radiance_patch import __version__, cli, registry, report
from radiance_patch.errors import Exit
from tests.faults import sandbox

SCHEMA = json.loads(Path(report.__file__).with_name("schema.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)
COMMANDS = sorted(cli.cli.commands)
IDS = [hunk.id for hunk in registry.hunks()]
# Those that the release of the tests' trees has something for.
CONCERNED = [hunk.id for hunk in registry.at(registry.hunks(), Version(sandbox.RELEASE.version))]


@pytest.fixture
def site(tmp_path):
    return sandbox.small_tree(tmp_path / "site-packages")


@pytest.fixture
def run(monkeypatch, capfd):
    """Run the command line in this process, for what no other process can be brought to do."""

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["radiance-patch", *map(str, args)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capfd.readouterr()
        return sandbox.Result(int(caught.value.code), out, err)

    return run


def checked(*args, site=None, **more):
    """Run a command with --json, and assert that what it prints has the published schema and its own exit code."""
    return valid(sandbox.tool(*args, "--json", site=site, **more))


def valid(result):
    body = result.body
    VALIDATOR.validate(body)
    assert body["exit"] == result.exit
    return body


def terminal(*args):
    """Run a command with a terminal for stdout, and return what it would show there."""
    ours, theirs = pty.openpty()
    env = {key: value for key, value in sandbox.environment().items() if key != "NO_COLOR"} | {"TERM": "xterm"}
    command = [sandbox.SCRIPT, *args]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 65536):
                shown += part
        except OSError:  # how Linux says that the other side is closed
            pass
        os.close(ours)
    return process.returncode, shown.decode()


# --- JSON ---


def test_schema_is_a_schema():
    Draft202012Validator.check_schema(SCHEMA)


def test_schema_names_what_the_code_knows():
    defs = SCHEMA["$defs"]
    assert defs["hunks"]["items"]["properties"]["state"]["enum"] == list(report.STATES)
    assert defs["head"]["properties"]["exit"]["enum"] == [int(code) for code in Exit]
    assert set(defs["head"]["properties"]["command"]["enum"]) == {*COMMANDS, ""}
    assert {part["$ref"].rpartition("/")[2] for part in SCHEMA["oneOf"]} == {*COMMANDS, "failure"}


@pytest.mark.parametrize("spoil", ["schema", "target", "hunks", "files", "more", "exit", "state"])
def test_schema_is_strict(site, spoil):
    body = checked("apply", "--check", *sandbox.SMALL, site=site)
    if spoil == "more":
        body["more"] = 1
    elif spoil == "exit":
        body["exit"] = 4
    elif spoil == "state":
        body["hunks"][0]["state"] = "fine"
    else:
        del body[spoil]
    assert not VALIDATOR.is_valid(body)


def test_apply_and_revert(site):
    pristine = sandbox.snapshot(site)
    body = checked("apply", "--check", site=site)
    assert (body["exit"], {hunk["state"] for hunk in body["hunks"]}) == (3, {"pristine"})
    assert "diff" not in body
    applied = checked("apply", site=site)
    assert (applied["exit"], applied["files"]) == (0, body["files"])
    assert [(hunk["id"], hunk["state"]) for hunk in applied["hunks"]] == [(name, "applied") for name in CONCERNED]
    assert applied["summary"] == f"applied, {len(body['files'])} files written"
    again = checked("apply", site=site)
    assert (again["exit"], again["files"], again["summary"]) == (0, [], "already applied, nothing written")
    assert checked("apply", "--check", site=site)["summary"] == "applied, nothing to do"
    reverted = checked("revert", site=site)
    assert reverted["exit"] == 0
    assert set(reverted["files"]) >= {f"vllm/{hunk['file']}" for hunk in applied["hunks"]}
    assert checked("revert", site=site)["summary"] == "not applied, nothing written"
    assert sandbox.differences(pristine, site) == []


def test_apply_diff(site):
    only = ("--only", "scheduler_cap", *sandbox.SMALL)
    text = sandbox.ok("apply", *only, "--diff", site=site).out
    body = checked("apply", *only, "--diff", site=site)
    files = sorted({f"vllm/{hunk['file']}" for hunk in body["hunks"]})
    assert (body["exit"], body["diff"]) == (0, text)
    assert re.findall(r"(?m)^\+\+\+ b/(.*)$", text) == files
    assert re.findall(r"(?m)^-(?!-)", text) == []
    subprocess.run(["git", "apply", "-"], cwd=site, input=text, text=True, check=True)
    by_git = [(site / file).read_bytes() for file in files]
    subprocess.run(["git", "apply", "-R", "-"], cwd=site, input=text, text=True, check=True)
    sandbox.ok("apply", *only, site=site)
    assert [(site / file).read_bytes() for file in files] == by_git


@pytest.mark.parametrize(("options", "exits"), [(["--check"], 3), (["--diff"], 0), (["--check", "--diff"], 3)])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_dry_runs_write_nothing(site, options, exits, form):
    with sandbox.untouched(site):
        assert sandbox.tool("apply", *sandbox.SMALL, *options, *form, site=site).exit == exits


def test_apply_only(site):
    body = checked("apply", "--only", "scheduler_cap", *sandbox.SMALL, site=site)
    assert [hunk["id"] for hunk in body["hunks"]] == ["async_scheduler_cap", "scheduler_cap"]
    status = checked("status", site=site)
    assert status["summary"] == f"applied, 2 of {len(CONCERNED)} hunks (--only)"
    applied = [hunk["id"] for hunk in status["hunks"] if hunk["state"] == "applied"]
    assert applied == ["async_scheduler_cap", "scheduler_cap"]


def test_status(site):
    body = checked("status", site=site)
    assert (body["exit"], body["summary"], body["problems"]) == (3, "not applied", [])
    assert body["target"]["site"] == str(site)
    sandbox.ok("apply", *sandbox.SMALL, site=site)
    body = checked("status", site=site)
    assert (body["exit"], body["next"]) == (0, None)
    path = site / sandbox.SMALL_FILE
    path.write_bytes(path.read_bytes() + b"# mine\n")
    body = checked("status", site=site)
    assert body["exit"] == 5
    line = path.read_bytes().count(b"\n")
    assert body["problems"] == [f"{path}:{line} was edited after apply"]
    assert body["nearest"] == ["0.33.0", "0.32.0"]
    assert {hunk["id"]: hunk["state"] for hunk in body["hunks"]}["async_scheduler_cap"] == "tampered"


def test_status_of_an_unknown_version(site):
    sandbox.set_version(site, "0.99.0")
    body = checked("status", site=site)
    assert body["exit"] == 4
    assert "0.33.0" in body["summary"]


def test_list():
    body = checked("list")
    assert [hunk["id"] for hunk in body["hunks"]] == IDS
    assert body["supported"][-1] == "0.33.0"


def test_doctor(site):
    body = checked("doctor", site=site)
    assert (body["exit"], body["summary"]) == (3, "see the lines marked !!")
    sandbox.ok("apply", *sandbox.SMALL, site=site)
    assert checked("doctor", site=site)["summary"] == "nothing is wrong"


def test_no_vllm(tmp_path):
    for command in ("apply", "revert", "status"):
        body = checked(command, site=tmp_path)
        assert (body["exit"], body["error"]["what"], body["target"]) == (1, "No vLLM was found.", None)
    assert checked("doctor", site=tmp_path)["exit"] == 1


def test_refused_apply_tells_of_every_hunk(site):
    sandbox.rewrite(site, sandbox.SMALL_FILE, sandbox.replace("def _update_after_schedule", "def _after_schedule"))
    body = checked("apply", site=site)
    assert body["exit"] == 4
    assert {hunk["state"] for hunk in body["hunks"]} == {"drifted", "pristine"}
    assert body["target"]["version"] == "0.33.0"
    with sandbox.untouched(site):
        text = sandbox.tool("apply", site=site).err
    assert "  drifted       async_scheduler_cap  v1/core/sched/async_scheduler.py" in text
    assert "error: Hunk async_scheduler_cap does not fit this vLLM (drifted)." in text


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (["apply", "--only", "nothing"], "No hunk is called nothing. `radiance-patch list` names them."),
        (["apply", "--colour"], "No such option"),
        (["status", "--lock-timeout", "-1"], "Invalid value for '--lock-timeout'"),
        (["revert", "more"], "Got unexpected extra argument"),
        (["aply"], "No such command"),
    ],
)
def test_wrong_usage(args, what):
    body = checked(*args)
    assert body["exit"] == 2
    assert what in body["error"]["what"]
    assert body["command"] == (args[0] if args[0] in COMMANDS else "")
    result = sandbox.tool(*args)
    assert (result.exit, result.out) == (2, "")
    assert result.err.startswith("Usage: radiance-patch")


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_bug_is_told_from_a_failure(run, monkeypatch, form):
    def broken():
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(registry, "hunks", broken)
    result = run("list", *form)
    assert result.exit == 70
    assert "Traceback" in result.err
    assert f"This is a bug in radiance-patch {__version__}." in result.err
    if form:
        assert valid(result)["error"]["what"] == "ZeroDivisionError: by zero"


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_an_interrupt_ends_in_words(run, monkeypatch, form):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(registry, "hunks", interrupted)
    result = run("list", *form)
    assert result.exit == 130
    assert "interrupted; nothing is half done" in result.err
    assert "Traceback" not in result.err
    if form:
        assert valid(result)["command"] == "list"


@pytest.mark.parametrize("command", ["apply", "status"])
def test_a_folder_in_the_place_of_a_file(site, command):
    (site / sandbox.SMALL_FILE).unlink()
    (site / sandbox.SMALL_FILE).mkdir()
    body = checked(command, site=site)
    assert body["exit"] == 6
    assert body["error"]["where"] == str(site / sandbox.SMALL_FILE)
    assert body["error"]["why"] == os.strerror(errno.EISDIR)


# --- for people ---


def texts(site):
    """What every command prints, by its name and by what it finds."""
    found = {"status, before": sandbox.tool("status", site=site), "list": sandbox.tool("list")}
    found["apply"] = sandbox.tool("apply", "--only", "scheduler_cap", *sandbox.SMALL, site=site)
    found |= {command: sandbox.tool(command, site=site) for command in ("status", "doctor", "revert")}
    return {name: result.out for name, result in found.items()}


def test_text_is_aligned_and_without_codes_when_piped(site):
    found = texts(site)
    for name, text in found.items():
        assert text.strip(), name
        assert "\x1b" not in text, name
        assert text.endswith("\n"), name
        assert [line for line in text.splitlines() if line != line.rstrip()] == [], name
        places = {line.index(line.split()[2]) for line in text.splitlines() if re.match(r"  [a-z-]+ +\w+  +\S", line)}
        assert len(places) == (1 if name.startswith(("apply", "status")) else 0), name
    assert re.match(r"vllm 0\.33\.0 in .*\napplied, \d+ files written\n  applied       async_", found["apply"])
    rows = found["list"].partition("\n\n")[0].splitlines()
    assert {re.match(r"\w* +", row).end() for row in rows} == {max(map(len, IDS)) + 2}
    assert len(rows) == 2 * len(IDS)


def test_doctor_is_aligned(site):
    lines = sandbox.tool("doctor", site=site).out.splitlines()
    assert {line[:2] for line in lines} == {"ok", "!!"}
    assert {re.match(r"(?:ok|!!)  [a-z-]+ +", line).end() for line in lines} == {len("ok  radiance-patch  ")}


def test_text_is_coloured_on_a_terminal(site):
    code, shown = terminal("status", "--target", site)
    assert code == 3
    assert "\x1b[36mpristine    \x1b[0m" in shown
    code, shown = terminal("apply", *sandbox.SMALL, "--target", site)
    assert code == 0
    assert "\x1b[32mapplied     \x1b[0m" in shown
    code, shown = terminal("apply", "--target", site / "nowhere")
    assert (code, "\x1b[31m\x1b[1merror: \x1b[0m" in shown) == (1, True)
    assert "\x1b[1m" in terminal("list")[1]
    assert "\x1b[31m!!\x1b[0m" in terminal("doctor", "--target", site.parent)[1]


def test_a_path_that_cannot_be_printed(site):
    odd = site.with_name(os.fsdecode(b"site-\xff"))
    site.rename(odd)
    for command in (["apply", *sandbox.SMALL], ["status"], ["doctor"], ["revert"]):
        assert sandbox.tool(*command, site=odd).exit == 0
        assert checked(*command, site=odd)["exit"] == 0


def test_one_file_is_no_plural(site):
    sandbox.ok("apply", *sandbox.SMALL, site=site)
    (site / "vllm/_radiance/guard.py").unlink()
    assert "applied, 1 file written\n" in sandbox.ok("apply", *sandbox.SMALL, site=site).out


def test_a_closed_pipe_is_no_bug():
    """As in `radiance-patch list | head -1`."""
    command = f"{shlex.quote(str(sandbox.SCRIPT))} list --json | true"
    result = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr) == ("", "")


@pytest.mark.parametrize(
    "command", ["apply --only scheduler_cap", "apply --check", "status", "revert", "list", "doctor"]
)
def test_neither_vllm_nor_torch_is_imported(site, command):
    """By default the target is the environment the tool runs in, so a real one is put there."""
    for name in ("torch", "numpy", "triton"):
        (site / name).mkdir()
        (site / name / "__init__.py").write_text("raise RuntimeError('imported')")
    (site / "vllm/__init__.py").unlink()
    (site / "vllm/__init__.py").write_text("raise RuntimeError('imported')")
    sandbox.seal(site, "vllm/__init__.py")
    code = "import sys; from radiance_patch.cli import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    result = sandbox.tool(
        *command.split(), command=(sys.executable, "-c", code), env={"PYTHONPATH": str(site), "RADIANCE_X": ""}
    )
    assert result.exit in (0, 3)
    loaded = {name.partition(".")[0] for name in result.err.split()}
    assert "radiance_patch" in loaded
    assert loaded.isdisjoint({"vllm", "torch", "numpy", "triton"})
