"""What the commands share: their options, and how they talk."""

from __future__ import annotations

from collections.abc import Callable

import click

from radiance_patch.errors import Exit


def say(message: str) -> None:
    """Talk to the person on stderr; stdout carries the result alone."""
    click.echo(message, err=True)


as_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object (schema 1) on stdout.")


def options(command: Callable[..., Exit]) -> Callable[..., Exit]:
    """Add the options every command has."""
    for option in (
        as_json_option,
        click.option(
            "--target",
            "place",
            metavar="DIR|PYTHON",
            help="A site-packages folder that holds vllm/, or a Python executable. Default: this environment.",
        ),
    ):
        command = option(command)
    return command


waiting = click.option(
    "--lock-timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=60,
    show_default=True,
    help="How long to wait for another radiance-patch at work on the same vLLM.",
)
