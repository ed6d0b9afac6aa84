"""The help texts: every command, option and exit code, and examples that are right."""

import functools
import re
import shlex
import sys

import click
import pytest

from radiance_patch import __version__, cli, registry
from radiance_patch.errors import MEANING
from tests.faults import sandbox

COMMANDS = sorted(cli.cli.commands)
IDS = [hunk.id for hunk in registry.hunks()]


@functools.cache
def help_of(*args):
    result = sandbox.tool(*args, "-h")
    assert result.exit == 0
    assert result.out == sandbox.tool(*args, "--help").out
    return result.out


def examples():
    """Every line of a help text that shows a call: its environment, and its arguments."""
    blocks = [re.search(r"^  Examples?:\n((?:    .+\n)+)", help_of(name), re.MULTILINE)[1] for name in COMMANDS]
    calls = [shlex.split(line) for block in blocks for line in block.splitlines()]
    return [(call[: call.index("radiance-patch")], call[call.index("radiance-patch") + 1 :]) for call in calls]


def test_help_names_every_command_and_exit_code():
    text = help_of()
    for name in COMMANDS:
        assert re.search(rf"^  {name} +[A-Z].*", text, re.MULTILINE)
    for code, meaning in MEANING.items():
        assert f"{int(code):>3}  {meaning}" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_an_example_and_every_option(name):
    text = help_of(name)
    assert re.search(r"^  Examples?:\n    (RADIANCE_\w+=\S+ )?radiance-patch " + name, text, re.MULTILINE)
    for parameter in [each for each in cli.cli.commands[name].params if isinstance(each, click.Option)]:
        assert parameter.help
        assert re.search(rf"^  (-h, )?{parameter.opts[-1]}", text, re.MULTILINE)
    # What check looks at is not installed anywhere.
    assert {"--json", "--target"} - ({"--target"} if name == "check" else set()) <= {
        option for p in cli.cli.commands[name].params for option in p.opts
    }


def test_examples_are_right():
    shown = examples()
    assert {args[0] for _, args in shown} == set(COMMANDS)
    for environment, (name, *args) in shown:
        context = cli.cli.commands[name].make_context(name, list(args))
        assert set(context.params.get("only", ())) <= set(IDS)
        for variable in environment:
            setting, _, value = variable.partition("=")
            assert setting in {known.name for known in registry.module("settings").SETTINGS}
            registry.module("settings").read({setting: value})


def test_version():
    assert sandbox.tool("--version").out == f"radiance-patch, version {__version__}\n"


def test_python_dash_m_is_the_command():
    result = sandbox.tool("list", command=(sys.executable, "-m", "radiance_patch"))
    assert result == sandbox.tool("list")
