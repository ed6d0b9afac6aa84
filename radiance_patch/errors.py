"""What can go wrong, and the exit code each kind owns."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version


class Exit(enum.IntEnum):
    """Exit codes of the command line; the README's table is generated from the docstrings below."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_APPLIED = 3
    DRIFTED = 4
    INCONSISTENT = 5
    CANNOT_WRITE = 6
    BUG = 70
    INTERRUPTED = 130


MEANING: dict[Exit, str] = {
    Exit.OK: "in the asked state, verified by hash",
    Exit.FAILED: "an expected failure not listed below",
    Exit.USAGE: "wrong usage",
    Exit.NOT_APPLIED: "not applied, or an older patch is in place (`status`, or `apply --check` with work to do)",
    Exit.DRIFTED: "this vLLM is unknown or its code has changed; nothing written",
    Exit.INCONSISTENT: "inconsistent: edited by someone else, half applied, or interrupted",
    Exit.CANNOT_WRITE: "cannot write: read-only, permission, space, or lock timeout; nothing changed",
    Exit.BUG: "a bug in radiance-patch (a traceback and a block for the report)",
    Exit.INTERRUPTED: "interrupted; rolled back",
}


@dataclass(frozen=True)
class Puzzle:
    """Code that only a comparison explains, which is made once the refusal is printed (see puzzle.solve).

    path: the file. name: its path relative to the site folder. found: its content.
    published: distribution and version of the release to compare with. scope: the function
    to compare, or None for the whole file. rebuild: makes what was there instead, or None.
    """

    path: Path
    name: str
    found: bytes
    published: tuple[str, Version] | None = None
    scope: str | None = None
    rebuild: Callable[[], bytes | None] | None = None


class PatchError(Exception):
    """An expected failure.

    what: one sentence. where: a path, `path:line`, or None. why: the cause, or None.
    next_step: the one command (or action) that helps. diff: what explains it, or empty.
    puzzle: what a diff can be had from, where that takes time.
    """

    exit = Exit.FAILED

    def __init__(
        self,
        what: str,
        *,
        where: Path | str | None = None,
        why: str | None = None,
        next_step: str,
        diff: str = "",
        puzzle: Puzzle | None = None,
    ) -> None:
        super().__init__(what)
        self.diff = diff
        self.puzzle = puzzle
        self.what = what
        self.where = str(where) if where is not None else None
        self.why = why
        self.next_step = next_step


class TargetError(PatchError):
    """No vLLM was found, or one that must not be patched."""


class BrokenInstallError(PatchError):
    """radiance-patch itself is incomplete: a hunk does not import, or the payload is missing."""


class FetchError(PatchError):
    """A published release cannot be found or read."""


class DriftError(PatchError):
    """vLLM's code is not what the hunks were proved on."""

    exit = Exit.DRIFTED


class InconsistentError(PatchError):
    """Files are neither vLLM's nor ours."""

    exit = Exit.INCONSISTENT


class WriteError(PatchError):
    """A file or folder cannot be written, or the lock was not free in time."""

    exit = Exit.CANNOT_WRITE
