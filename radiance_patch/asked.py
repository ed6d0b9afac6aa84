"""Carries out a check: gets the releases that were asked for, and judges each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.version import Version

from radiance_patch import check as checks
from radiance_patch import publisher, registry, release
from radiance_patch.check import Checked
from radiance_patch.hunk import Hunk
from radiance_patch.publisher import Publisher
from radiance_patch.release import Release


def check(
    publishes: Publisher,
    hunks: list[Hunk],
    versions: Sequence[Version],
    *,
    latest: bool = False,
    distributions: Sequence[str] = (),
    wheel: Path | None = None,
    source: Path | None = None,
) -> list[Checked]:
    """Check every release asked for; with `source`, the versions name what lies there.

    Raises FetchError when one cannot be found or read; then nothing was judged.
    """
    asked = _releases(publishes, versions, latest=latest, distributions=distributions, wheel=wheel, source=source)
    return [_judged(each, hunks, publishes) for each in list(asked)]


def _judged(each: Release, hunks: list[Hunk], publishes: Publisher) -> Checked:
    before = publishes.received
    hunks = registry.at(hunks, each.public)
    publisher.read(each, checks.files(hunks))
    return checks.check(each, hunks, publishes.reference, lambda: publishes.received - before)


def _releases(
    publishes: Publisher,
    versions: Sequence[Version],
    *,
    latest: bool,
    distributions: Sequence[str],
    wheel: Path | None,
    source: Path | None,
) -> Iterator[Release]:
    if wheel:
        yield release.from_wheel(wheel)
    if source:
        yield release.from_folder(source, versions[0] if versions else None)
        return
    for distribution in distributions:
        newest = [publishes.wheels(distribution).newest()] if latest else []
        for version in dict.fromkeys([*versions, *newest]):
            yield publishes.release(distribution, version)
