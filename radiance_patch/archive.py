"""Reads the files of a release in a folder or in a wheel on disk."""

from __future__ import annotations

import contextlib
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from radiance_patch.errors import FetchError

# How zipfile says that what it reads is broken, or is compressed or encrypted in a way no wheel is.
BROKEN = (zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError, RuntimeError)


class Files(Protocol):
    """The files of a release, by their path in the wheel."""

    def names(self) -> frozenset[str]:
        """Every path."""

    def read(self, name: str) -> bytes | None:
        """Return a file's content; None where there is none of this path."""


class Folder:
    """The files under a folder that holds `vllm/`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> frozenset[str]:
        """Every Python file of the package."""
        return frozenset(path.relative_to(self._path).as_posix() for path in (self._path / "vllm").rglob("*.py"))

    def read(self, name: str) -> bytes | None:
        """Return a file's content; None where there is none of this path."""
        path = self._path / name
        return path.read_bytes() if path.is_file() else None


class WheelFile:
    """The files of a wheel on disk. Raises FetchError when it is none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._said():
            self._zip = zipfile.ZipFile(path)

    def names(self) -> frozenset[str]:
        """Every path."""
        return frozenset(self._zip.namelist())

    def read(self, name: str) -> bytes | None:
        """Return a file's content; None where there is none of this path."""
        with self._said():
            return self._zip.read(name) if name in self.names() else None

    @contextlib.contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except (OSError, *BROKEN) as error:
            why = getattr(error, "strerror", None) or str(error)
            next_step = "pip download --no-deps vllm==VERSION"
            raise FetchError("This wheel cannot be read.", where=self._path, why=why, next_step=next_step) from error
