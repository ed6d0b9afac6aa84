"""Published releases, read through the indexes that pip is configured for."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from typing import IO

import click
import remotezip
import requests
from packaging.version import Version

from radiance_patch import index, pipconfig, store
from radiance_patch.archive import BROKEN, Files, WheelFile
from radiance_patch.errors import FetchError
from radiance_patch.index import Found, Wheel, local_path
from radiance_patch.release import Release
from radiance_patch.web import Session, shown, without_credentials

CHUNK = 1 << 20
# Beside a wheel's own names in the cache, where no member can have it.
LISTING = "//names"


class Publisher:
    """Gives published releases, through the indexes pip is configured for; pip and each index are asked once.

    patience: seconds to wait for an answer, once, where that is less than what pip is told.
    """

    def __init__(self, patience: float | None = None) -> None:
        self._patience = patience
        self._open = contextlib.ExitStack()
        self._found: dict[str, Found] = {}
        self._files: dict[str, Files] = {}

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *_error: object) -> None:
        self._open.close()

    @functools.cached_property
    def session(self) -> Session:
        """What is fetched with. Raises FetchError when pip's configuration cannot be read."""
        return self._open.enter_context(Session(pipconfig.read(), self._patience))

    @property
    def received(self) -> int:
        """Bytes of wheels fetched so far."""
        return self.session.received if "session" in self.__dict__ else 0

    def wheels(self, distribution: str) -> Found:
        """Ask for the wheels of a distribution."""
        if distribution not in self._found:
            self._found[distribution] = index.find(distribution, self.session)
        return self._found[distribution]

    def release(self, distribution: str, version: Version) -> Release:
        """Return a published release. Raises FetchError when there is none."""
        wheel = self.wheels(distribution).wheel(version)
        if wheel.url not in self._files:  # a wheel's list of members is most of what is fetched of it
            path = local_path(wheel.url)
            self._files[wheel.url] = WheelFile(path) if path else Published(wheel, self.session, self._open)
        return Release(distribution, wheel.version, wheel.name, self._files[wheel.url], wheel.size)

    def reference(self, distribution: str, version: Version) -> Release:
        """Return a release to compare with: of the distribution, or else of vLLM's own. Raises FetchError."""
        known = {Version(wheel.version.public) for wheel in self.wheels(distribution).wheels}
        return self.release(distribution if version in known else "vllm", version)


def read(release: Release, names: Iterable[str]) -> None:
    """Read files ahead, showing on stderr how far that is."""
    with click.progressbar(sorted(names), label=f"reading {release}", file=sys.stderr) as bar:
        for name in bar:
            release.files.read(name)


class Published:
    """The files of a published wheel, kept in the cache once fetched. Raises FetchError when the server fails."""

    def __init__(self, wheel: Wheel, session: Session, opened: contextlib.ExitStack) -> None:
        self._wheel = wheel
        self._open = opened
        self._session = session
        self._key = wheel.sha256 or shown(wheel.url)
        self._zip: zipfile.ZipFile | None = None

    def names(self) -> frozenset[str]:
        """Every path."""
        kept = store.get(self._key + LISTING)
        if kept is None:
            with self._said():
                kept = json.dumps(self._opened().namelist()).encode()
            store.put(self._key + LISTING, kept)
        return frozenset(json.loads(kept))

    def read(self, name: str) -> bytes | None:
        """Return a file's content; None where there is none of this path."""
        kept = store.get(f"{self._key}/{name}")
        if kept is None and name in self.names():
            with self._said():
                kept = self._opened().read(name)
            store.put(f"{self._key}/{name}", kept)
        return kept

    def _opened(self) -> zipfile.ZipFile:
        if self._zip is None:
            try:
                self._zip = self._open.enter_context(remotezip.RemoteZip(self._wheel.url, session=self._session))
            except (remotezip.RemoteZipError, remotezip.RemoteIOError, zipfile.BadZipFile):
                self._zip = self._open.enter_context(zipfile.ZipFile(self._whole()))
        return self._zip

    def _whole(self) -> IO[bytes]:
        """Fetch the wheel into a file without a name; its hash is checked where the index gave one."""
        file = self._open.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # the linter takes it for open()
        sums = hashlib.sha256()
        with self._session.get(self._wheel.url, stream=True) as answer:
            answer.raise_for_status()
            size = int(answer.headers.get("Content-Length") or self._wheel.size or 0)
            with click.progressbar(length=size, label=f"{self._wheel.name} (no byte ranges)", file=sys.stderr) as bar:
                for part in answer.iter_content(CHUNK):
                    self._session.received += file.write(part)
                    sums.update(part)
                    bar.update(len(part))
        if self._wheel.sha256 not in (None, sums.hexdigest()):
            raise zipfile.BadZipFile("it does not have the hash that the index lists")
        return file

    @contextlib.contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except (requests.RequestException, remotezip.RemoteIOError, remotezip.RemoteZipError, OSError) as error:
            why = without_credentials(str(error))
        except BROKEN as error:
            why = f"it is no whole wheel: {error}"
        else:
            return
        distribution = self._wheel.name.partition("-")[0].replace("_", "-")
        raise FetchError(
            f"{self._wheel.name} cannot be fetched.",
            where=shown(self._wheel.url),
            why=why,
            next_step=f"pip download --no-deps {distribution}=={self._wheel.version}   (then: check --wheel FILE)",
        )
