"""Finds the published wheels of a distribution through the package indexes that pip is configured for."""

from __future__ import annotations

import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mousebender.simple
import requests
from mousebender.simple import UnsupportedAPIVersion
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from radiance_patch.errors import FetchError
from radiance_patch.web import Session, shown, without_credentials

# What reading a page raises that is none of the simple API.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, UnsupportedAPIVersion)


@dataclass(frozen=True)
class Wheel:
    """A published wheel. url: http(s) or file. sha256: in hex, where the index says. size: bytes, likewise."""

    name: str
    url: str
    version: Version
    sha256: str | None = None
    size: int | None = None
    yanked: bool = False


@dataclass(frozen=True)
class Found:
    """The wheels of one distribution, and what kept an index from being asked."""

    distribution: str
    wheels: tuple[Wheel, ...]
    failures: tuple[str, ...]

    def newest(self) -> Version:
        """Return the newest final release. Raises FetchError when there is none."""
        final = [wheel.version for wheel in self.wheels if not wheel.version.is_prerelease and not wheel.yanked]
        if not final:
            raise self._missing(f"No release of {self.distribution} was found.")
        return max(final)

    def wheel(self, version: Version) -> Wheel:
        """Return one wheel of a version: of its local version if that is named and published, else of the public one.

        Their Python files are the same on every platform. Raises FetchError when there is none.
        """
        for wanted in (version, Version(version.public)):
            wheels = [wheel for wheel in self.wheels if wheel.version == wanted]
            wheels = wheels or [wheel for wheel in self.wheels if Version(wheel.version.public) == wanted]
            if wheels:
                return min(wheels, key=lambda wheel: ("x86_64" not in wheel.name, wheel.name))
        raise self._missing(f"{self.distribution} {version} was not found as a wheel.")

    def _missing(self, what: str) -> FetchError:
        newest = sorted({wheel.version for wheel in self.wheels}, reverse=True)[:3]
        why = f"the newest found: {', '.join(map(str, newest))}" if newest else "the configured indexes have none"
        next_step = f"pip index versions {self.distribution}"
        return FetchError(what, why="; ".join([why, *self.failures]), next_step=next_step)


def find(distribution: str, session: Session) -> Found:
    """Ask every configured index and find-links place; one that fails is named and passed over, as pip does."""
    wheels: list[Wheel] = []
    failures: list[str] = []
    pages = [mousebender.simple.create_project_url(url, distribution) for url in session.config.indexes]
    for url in (*pages, *session.config.find_links):
        try:
            wheels += [wheel for wheel in _wheels(url, distribution, session) if _is_of(wheel, distribution)]
        except (requests.RequestException, OSError, *MALFORMED) as error:  # noqa: PERF203
            failures.append(f"{shown(url)}: {without_credentials(str(error) or type(error).__name__)}")
    return Found(distribution, tuple(wheels), tuple(failures))


def local_path(url: str) -> Path | None:
    """Return the path of a file URL or a plain path; None for any other URL."""
    place = urllib.parse.urlsplit(url)
    if place.scheme == "file":
        return Path(urllib.request.url2pathname(place.path))
    return None if "://" in url else Path(url)


def _wheels(url: str, distribution: str, session: Session) -> Iterator[Wheel]:
    path = local_path(url)
    if path is not None:
        yield from _local(path, distribution)
        return
    if not session.secure(url):
        raise ValueError("plain HTTP, and no trusted host")
    answer = session.get(url, headers={"Accept": mousebender.simple.ACCEPT_SUPPORTED})
    if answer.status_code == requests.codes.not_found:
        return
    answer.raise_for_status()
    # Some servers name none of the registered types.
    kind = mousebender.simple.ACCEPT_JSON_V1 if "json" in answer.headers.get("Content-Type", "") else "text/html"
    page = mousebender.simple.parse_project_details(answer.text, kind, distribution)
    yield from _listed(answer.url, page)


def _local(path: Path, distribution: str) -> Iterator[Wheel]:
    page = path / "index.html" if path.is_dir() else path
    if page.is_file() and page.suffix == ".html":
        yield from _listed(page.as_uri(), mousebender.simple.from_project_details_html(page.read_text(), distribution))
    elif path.is_dir():
        for file in sorted(path.glob("*.whl")):
            yield from _listed(path.as_uri(), {"files": [{"filename": file.name, "url": file.absolute().as_uri()}]})


def _listed(base: str, page: Any) -> Iterator[Wheel]:
    for file in page["files"]:
        try:
            _, version, _, _ = parse_wheel_filename(file["filename"])
        except InvalidWheelFilename:
            continue
        hashes = file.get("hashes") or {}  # a pair where the page was HTML
        sums = hashes if isinstance(hashes, dict) else dict([hashes])
        yield Wheel(
            file["filename"],
            urllib.parse.urljoin(base, file["url"]),
            version,
            sums.get("sha256"),
            file.get("size"),
            bool(file.get("yanked")),
        )


def _is_of(wheel: Wheel, distribution: str) -> bool:
    return parse_wheel_filename(wheel.name)[0] == distribution
