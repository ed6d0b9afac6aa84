"""What an apply leaves behind to be checked, upgraded and taken back: the folder in the dist-info."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from radiance_patch import image
from radiance_patch.errors import InconsistentError
from radiance_patch.image import Image
from radiance_patch.target import Target

FOLDER = "radiance-patch"
SCHEMA = 1


@dataclass(frozen=True)
class FileState:
    """One file the patch owns or changed.

    before: its metadata before the first apply (see Image.meta), None for a file of ours.
    after: the hash of what the patch put there, None for a cached file it removed.
    """

    before: dict[str, Any] | None
    after: str | None


@dataclass(frozen=True)
class State:
    """A finished apply.

    tool: the radiance-patch version. hunks: the digest of every hunk in place, by id.
    unreviewed: ids accepted though their function had changed. asked: the ids asked for
    by `--only`, or None for all. files: by path relative to the site folder. rows: the
    RECORD row each path had before, None where it had none.
    """

    tool: str
    vllm: str
    hunks: dict[str, str]
    unreviewed: list[str]
    asked: list[str] | None
    files: dict[str, FileState] = field(default_factory=dict)
    rows: dict[str, str | None] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Write the state as JSON, with a hash of itself; equal states give equal bytes."""
        body = {"schema": SCHEMA, **self.__dict__, "files": {k: v.__dict__ for k, v in self.files.items()}}
        return (json.dumps({**body, "sha256": _checksum(body)}, indent=1, sort_keys=True) + "\n").encode()


def folder(target: Target) -> Path:
    """The state folder inside the target's dist-info."""
    return target.dist_info / FOLDER


def state_file(target: Target) -> Path:
    """The state itself."""
    return folder(target) / "state.json"


def original_path(target: Target, sha256: str) -> Path:
    """Where a saved original lies, named by its hash."""
    return folder(target) / "originals" / sha256


def own_files(target: Target) -> list[Path]:
    """Every file of the state folder."""
    return [path for path in sorted(folder(target).rglob("*")) if path.is_file()]


def load(target: Target) -> State | None:
    """Read the state; None where nothing was applied. Raises InconsistentError when it is unreadable."""
    path = state_file(target)
    try:
        body = json.loads(path.read_bytes())
        checksum = body.pop("sha256", None)
        if body["schema"] != SCHEMA:
            raise ValueError("it was written by a newer radiance-patch")
        if checksum != _checksum(body):
            raise ValueError("its content does not have the hash it was written with")
        del body["schema"]
        files = {name: FileState(**entry) for name, entry in body.pop("files").items()}
        return State(**body, files=files)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InconsistentError(
            "The record of the patch cannot be read.",
            where=path,
            why=str(error),
            next_step=reinstall(target),
        ) from error


def _checksum(body: dict[str, Any]) -> str:
    return sha256(json.dumps(body, sort_keys=True).encode())


def original(target: Target, name: str, entry: FileState) -> Image:
    """Read a saved original. Raises InconsistentError when it is gone or was changed."""
    meta = entry.before
    assert meta is not None, name
    path = original_path(target, meta["sha256"])
    try:
        return image.from_meta(meta, path.read_bytes())
    except (OSError, ValueError) as error:
        raise InconsistentError(
            f"The saved original of {name} cannot be used.",
            where=path,
            why=str(error),
            next_step=reinstall(target),
        ) from error


def reinstall(target: Target) -> str:
    """Return the command that brings back vLLM's own files, whatever became of them."""
    return f"pip install --force-reinstall --no-deps {target.distribution}=={target.version.public}"


def sha256(data: bytes) -> str:
    """Hash content, in hex."""
    return hashlib.sha256(data).hexdigest()
