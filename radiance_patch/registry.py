"""Finds the hunks and the payload: a new file in hunks/ or kernels/ is all it takes."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import importlib.resources
import pkgutil
from typing import Any

from packaging.version import Version

from radiance_patch.errors import BrokenInstallError
from radiance_patch.hunk import Edit, Hunk, Variant

REINSTALL = "pip install --force-reinstall radiance-patch"


def hunks() -> list[Hunk]:
    """Import every module of `radiance_patch.hunks` and return their hunks by id.

    Raises BrokenInstallError, naming the file, when one does not import or there is none.
    """
    package = _package("radiance_patch.hunks")
    found: list[Hunk] = []
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        name = f"{package.__name__}.{info.name}"
        try:
            hunk = importlib.import_module(name).HUNK
            if not isinstance(hunk, Hunk):
                raise TypeError("HUNK is no Hunk")
        except Exception as error:
            raise BrokenInstallError(
                f"The hunk {info.name} cannot be loaded.",
                where=f"{next(iter(package.__path__))}/{info.name}.py",
                why=f"{type(error).__name__}: {error}",
                next_step=REINSTALL,
            ) from error
        found.append(hunk)
    if not found:
        raise BrokenInstallError(
            "This radiance-patch carries no hunks.", where=next(iter(package.__path__)), next_step=REINSTALL
        )
    return found


@functools.cache
def payload() -> dict[str, bytes]:
    """Return the payload modules, by file name. Raises BrokenInstallError when there are none."""
    package = _package("radiance_patch.kernels")
    root = importlib.resources.files("radiance_patch.kernels")
    files = {item.name: item.read_bytes() for item in root.iterdir() if item.name.endswith(".py")}
    if "__init__.py" not in files or len(files) < 2:
        raise BrokenInstallError(
            "This radiance-patch carries no payload.", where=next(iter(package.__path__)), next_step=REINSTALL
        )
    return dict(sorted(files.items()))


def module(name: str) -> Any:
    """Import one payload module. Raises BrokenInstallError when it is missing."""
    return _package(f"radiance_patch.kernels.{name}")


def digest(hunk: Hunk, edit: Edit) -> str:
    """Hash an edit with the payload it calls.

    It stands in the patched line, so an old patch is never taken for a new one and
    vLLM's compile cache, which hashes traced sources, changes with the payload.
    """
    sums = hashlib.sha256(f"{hunk.id}\0{edit.where.value}\0{edit.text}\0{','.join(hunk.calls)}".encode())
    for name, data in payload().items():
        sums.update(name.encode() + b"\0" + data)
    return sums.hexdigest()[:12]


def at(found: list[Hunk], version: Version) -> list[Hunk]:
    """Return the hunks that have something to patch in a version, each with the file it rewrites there."""
    return [
        dataclasses.replace(hunk, file=closest(hunk, version).file or hunk.file)
        for hunk in found
        if hunk.concerns(version)
    ]


def closest(hunk: Hunk, version: Version) -> Variant:
    """Return the form of the proved release nearest to a version."""
    variant = hunk.variant_for(nearest(version, sorted(hunk.releases), 1)[0])
    assert variant is not None, hunk.id
    return variant


def supported(found: list[Hunk]) -> list[Version]:
    """Return the releases that every hunk that concerns them was proved on, oldest first."""
    proved = set.union(*(hunk.releases for hunk in found))
    return sorted(
        version for version in proved if all(version in hunk.releases for hunk in found if hunk.concerns(version))
    )


def nearest(version: Version, releases: list[Version], count: int = 2) -> list[Version]:
    """Return the supported releases closest to a version, closest first."""

    def number(any_version: Version) -> int:
        return any_version.major * 10**12 + any_version.minor * 10**6 + any_version.micro

    return sorted(releases, key=lambda other: abs(number(other) - number(version)))[:count]


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise BrokenInstallError(
            f"This radiance-patch is incomplete: {name} is missing.", why=str(error), next_step=REINSTALL
        ) from error
