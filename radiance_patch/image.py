"""A file as it is on disk, to compare it, put it back, or put another in its place."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Image:
    """A file's content and the metadata that a replacement keeps.

    mode: permission bits. mtime_ns: nanoseconds. link: where it points, for a symbolic
    link (then the content and the rest are those of the file it leads to).
    """

    data: bytes
    mode: int
    mtime_ns: int
    uid: int
    gid: int
    link: str | None = None

    @property
    def sha256(self) -> str:
        """The content's hash, in hex."""
        return hashlib.sha256(self.data).hexdigest()

    def meta(self) -> dict[str, Any]:
        """Everything but the content, for JSON."""
        return {
            "sha256": self.sha256,
            "mode": self.mode,
            "mtime_ns": self.mtime_ns,
            "uid": self.uid,
            "gid": self.gid,
            "link": self.link,
        }


def read(path: Path) -> Image | None:
    """Read a file, or return None where there is none. Raises OSError for anything else."""
    try:
        link = str(path.readlink()) if path.is_symlink() else None
        with path.open("rb") as file:
            info = os.fstat(file.fileno())
            return Image(file.read(), stat.S_IMODE(info.st_mode), info.st_mtime_ns, info.st_uid, info.st_gid, link)
    except FileNotFoundError:
        return None


def from_meta(meta: dict[str, Any], data: bytes) -> Image:
    """Join saved metadata with saved content. Raises ValueError when the content is not what was saved."""
    image = Image(data, meta["mode"], meta["mtime_ns"], meta["uid"], meta["gid"], meta["link"])
    if image.sha256 != meta["sha256"]:
        raise ValueError("the saved content does not have the saved hash")
    return image
