"""The command line: parse, call, render, map to an exit code."""

from __future__ import annotations

import io
import os
import platform
import sys
import traceback
from typing import Any, NoReturn

import click

from radiance_patch import __version__, commit, doctor, features, plan, registry, report, signals, state, status, target
from radiance_patch.cli_check import check_command
from radiance_patch.errors import MEANING, Exit, PatchError, WriteError
from radiance_patch.hunk import Hunk
from radiance_patch.options import options, say, waiting
from radiance_patch.plan import Plan
from radiance_patch.target import Target

EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {int(code):>3}  {meaning}" for code, meaning in MEANING.items())


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.version_option(__version__, prog_name="radiance-patch")
def cli() -> None:
    """Patch an installed vLLM so that its speculative decoding adapts to the text."""


@cli.command()
@click.option("--check", is_flag=True, help="Write nothing; exit 0 if nothing is to do, 3 if there is.")
@click.option("--diff", is_flag=True, help="Write nothing; print the change to vLLM's sources as a unified diff.")
@click.option("--only", metavar="ID", multiple=True, help="Apply this hunk alone; may be repeated.")
@click.option("--accept-unreviewed", is_flag=True, help="Apply hunks whose function has changed since it was reviewed.")
@waiting
@options
def apply(check: bool, diff: bool, only: tuple[str, ...], accept_unreviewed: bool, **common: Any) -> Exit:
    """Put the patch in; already in: change nothing.

    \b
    Examples:
      radiance-patch apply
      radiance-patch apply --check --target /opt/venv/bin/python
      radiance-patch apply --only scheduler_observe --only scheduler_cap --diff
    """
    dry = check or diff
    hunks = registry.hunks()
    unknown = sorted(set(only) - {hunk.id for hunk in hunks})
    if unknown:
        raise click.UsageError(f"No hunk is called {', '.join(unknown)}. `radiance-patch list` names them.")
    found = target.find(common["place"])
    if absent := [hunk.id for hunk in hunks if hunk.id in only and not hunk.concerns(found.public)]:
        raise click.UsageError(f"vLLM {found.version} has nothing for {', '.join(absent)} to patch.")
    with commit.locked(found, shared=dry, timeout=common["lock_timeout"], say=say):
        _recover(found, dry=dry)
        planned = plan.for_apply(found, hunks, state.load(found), only, accept=accept_unreviewed)
        if not dry and not planned.refusal:
            commit.run(found, planned)
    if planned.refusal:
        _print_refusal(found, planned, as_json=common["as_json"])
    if dry:
        return _print_dry(found, planned, check=check, diff=diff, as_json=common["as_json"])
    word = f"applied, {_files(planned)} written" if planned.changes else "already applied, nothing written"
    _print_plan("apply", found, planned, word, as_json=common["as_json"])
    return Exit.OK


@cli.command()
@waiting
@options
def revert(**common: Any) -> Exit:
    """Take the patch out: every file as it was before, bytecode, times and RECORD included.

    \b
    Examples:
      radiance-patch revert
      radiance-patch revert --target /opt/venv/bin/python
    """
    found = target.find(common["place"])
    with commit.locked(found, shared=False, timeout=common["lock_timeout"], say=say):
        _recover(found, dry=False)
        old = state.load(found)
        planned = plan.for_revert(found, old) if old else Plan()
        commit.run(found, planned)
    word = f"reverted, {_files(planned)} restored or removed" if old else "not applied, nothing written"
    _print_plan("revert", found, planned, word, as_json=common["as_json"])
    return Exit.OK


@cli.command("status")
@waiting
@options
def status_command(**common: Any) -> Exit:
    """Say whether the patch is in, by hash; exit 0 only if it is.

    \b
    Examples:
      radiance-patch status
      radiance-patch status --json --target /opt/venv/bin/python
    """
    found, hunks = target.find(common["place"]), registry.hunks()
    with commit.locked(found, shared=True, timeout=common["lock_timeout"], say=say):
        result = status.inspect(found, hunks)
    mine = registry.at(hunks, found.public)
    placed = {hunk.id for hunk in result.hunks if hunk.state == "applied"}
    if common["as_json"]:
        more = {
            "hunks": report.hunk_json(result.hunks),
            "features": features.rows(mine, placed),
            "problems": result.problems,
            "next": result.next_step,
            "supported": _supported(hunks),
            "nearest": [str(version) for version in registry.nearest(found.public, registry.supported(hunks))],
        }
        click.echo(report.dump(report.envelope("status", result.exit, result.summary, found, **more)))
    else:
        click.echo(report.status_text(found, result))
        if placed:
            click.echo(f"live: {features.text(mine, placed)}; the engine's first lines say if it holds for a model")
    return result.exit


@cli.command("list")
@options
def list_command(**common: Any) -> Exit:
    """Name the hunks, what they are for and the releases they were proved on.

    \b
    Example:
      radiance-patch list --json
    """
    hunks = registry.hunks()
    releases = _supported(hunks)
    if common["as_json"]:
        rows = [
            {
                "id": hunk.id,
                "file": hunk.file,
                "why": hunk.why,
                "upstream": hunk.upstream,
                "remove_when": hunk.remove_when,
                "releases": [str(version) for version in sorted(hunk.releases)],
            }
            for hunk in hunks
        ]
        every = features.rows(hunks, {hunk.id for hunk in hunks})
        head = report.envelope("list", Exit.OK, f"{len(hunks)} hunks", hunks=rows, features=every, supported=releases)
        click.echo(report.dump(head))
    else:
        wide = max(len(hunk.id) for hunk in hunks)
        for hunk in hunks:
            click.echo(f"{click.style(f'{hunk.id:<{wide}}', bold=True)}  {hunk.file}\n{'':<{wide}}  {hunk.why}")
        click.echo(f"\nproved on vLLM {', '.join(releases)}")
    return Exit.OK


@cli.command("doctor")
@options
def doctor_command(**common: Any) -> Exit:
    """Look for what could be wrong: the installation, the settings, the caches.

    \b
    Example:
      RADIANCE_DYNW_ALPHA=0.5 radiance-patch doctor
    """
    findings = doctor.examine(common["place"])
    code = doctor.verdict(findings)
    summary = "nothing is wrong" if code is Exit.OK else "see the lines marked !!"
    if common["as_json"]:
        rows = [{"topic": f.topic, "text": f.text, "exit": int(f.exit)} for f in findings]
        click.echo(report.dump(report.envelope("doctor", code, summary, findings=rows)))
    else:
        wide = max(len(finding.topic) for finding in findings)
        for finding in findings:
            mark = click.style("ok", fg="green") if finding.exit is Exit.OK else click.style("!!", fg="red")
            click.echo(f"{mark}  {finding.topic:<{wide}}  {finding.text}")
    return code


cli.add_command(check_command)


def main() -> NoReturn:
    """Run the command line; every ending has its exit code, and only a bug prints a traceback."""
    signals.raise_interrupt()
    as_json = "--json" in sys.argv[1:]
    command = next((word for word in sys.argv[1:] if word in cli.commands), "")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a path need not be printable
            stream.reconfigure(errors="backslashreplace")
    try:
        code = cli.main(standalone_mode=False)
        sys.exit(int(code) if isinstance(code, int) else 0)
    except PatchError as error:
        _fail(error, command, as_json=as_json)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        code = Exit.USAGE if isinstance(error, click.UsageError) else Exit.FAILED
        _end(code, command, error.format_message(), "radiance-patch --help", as_json=as_json)
    except (click.Abort, KeyboardInterrupt):
        say("interrupted; nothing is half done, radiance-patch status says what is in place")
        _end(Exit.INTERRUPTED, command, "interrupted", "run the same command again", as_json=as_json)
    except OSError as error:
        if error.filename is not None:
            _fail(_unreadable(error), command, as_json=as_json)
        _end_unprinted(error)
    except Exception as error:
        traceback.print_exc()
        say(f"This is a bug in radiance-patch {__version__}. Please report the lines above with these:")
        say(f"  python {platform.python_version()} on {platform.platform()}; arguments: {sys.argv[1:]}")
        _end(Exit.BUG, command, f"{type(error).__name__}: {error}", "report what stderr says", as_json=as_json)


def _fail(error: PatchError, command: str, *, as_json: bool) -> NoReturn:
    _solve(error)
    if as_json:
        click.echo(report.dump(report.error_json(command, error)))
    say(report.error_text(error))
    sys.exit(error.exit)


def _solve(error: PatchError) -> None:
    if error.puzzle:
        from radiance_patch import puzzle  # noqa: PLC0415  # its HTTP library takes longer to import than status takes

        puzzle.solve(error)


def _end(code: Exit, command: str, what: str, next_step: str, *, as_json: bool) -> NoReturn:
    """End with an exit code that no PatchError owns; stderr has been told already."""
    if as_json:
        click.echo(report.dump(report.error_json(command, PatchError(what, next_step=next_step), code)))
    sys.exit(code)


def _end_unprinted(error: OSError) -> NoReturn:
    """End after an error without a file's name; only the standard streams are used without one."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python would try again to print what is left
    if not isinstance(error, BrokenPipeError):
        say(f"error: the result cannot be printed: {error.strerror}; what was asked for is done")
    sys.exit(Exit.FAILED)


def _unreadable(error: OSError) -> PatchError:
    return WriteError(
        "A file cannot be read.",
        where=error.filename,
        why=error.strerror or str(error),
        next_step="run the same command as the user who owns the environment; if that is you: radiance-patch doctor",
    )


def _supported(hunks: list[Hunk]) -> list[str]:
    return [str(version) for version in registry.supported(hunks)]


def _files(planned: Plan) -> str:
    return f"{len(planned.changes)} file" + ("" if len(planned.changes) == 1 else "s")


def _recover(found: Target, *, dry: bool) -> None:
    if dry and commit.unfinished(found):
        raise commit.unfinished_error(found)
    if not dry and commit.recover(found):
        say("An apply or revert had been cut off; everything is as it was before it.")


def _print_refusal(found: Target, planned: Plan, *, as_json: bool) -> NoReturn:
    assert planned.refusal is not None
    _solve(planned.refusal)
    if as_json:
        body = report.error_json("apply", planned.refusal)
        body["target"] = report.describe(found)
        body["hunks"] = report.hunk_json(report.hunk_rows(planned, done=False))
        click.echo(report.dump(body))
    else:
        say(report.hunk_table(report.hunk_rows(planned, done=False)))
    say(report.error_text(planned.refusal))
    sys.exit(planned.refusal.exit)


def _print_dry(found: Target, planned: Plan, *, check: bool, diff: bool, as_json: bool) -> Exit:
    code = Exit.NOT_APPLIED if check and planned.changes else Exit.OK
    if diff and not as_json:
        click.echo(report.diff_text(planned.changes), nl=False)
        return code
    word = f"{_files(planned)} to write" if planned.changes else "applied, nothing to do"
    more = {"diff": report.diff_text(planned.changes)} if diff else {}
    _print_plan("apply", found, planned, word, as_json=as_json, done=not planned.changes, code=code, **more)
    return code


def _print_plan(
    command: str,
    found: Target,
    planned: Plan,
    summary: str,
    *,
    as_json: bool,
    done: bool = True,
    code: Exit = Exit.OK,
    **more: Any,
) -> None:
    rows = report.hunk_rows(planned, done=done)
    if as_json:
        files = [change.path for change in planned.changes]
        more = {"hunks": report.hunk_json(rows), "files": files, **more}
        click.echo(report.dump(report.envelope(command, code, summary, found, **more)))
        return
    click.echo(report.headline(found))
    click.echo(click.style(summary, fg="green" if code is Exit.OK else "yellow", bold=True))
    if rows:
        click.echo(report.hunk_table(rows))
