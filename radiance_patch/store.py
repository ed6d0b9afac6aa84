"""What was fetched, kept in the user's cache folder under a size limit."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

import platformdirs

LIMIT = 64 * 2**20


def root() -> Path:
    """Return the folder: in the one RADIANCE_PATCH_CACHE names, or in the user's cache folder."""
    chosen = os.environ.get("RADIANCE_PATCH_CACHE")
    return (Path(chosen) if chosen else platformdirs.user_cache_path("radiance-patch")) / "fetched"


def limit() -> int:
    """Return the size limit in bytes; RADIANCE_PATCH_CACHE_MB gives another in megabytes."""
    text = os.environ.get("RADIANCE_PATCH_CACHE_MB", "")
    return int(text) * 2**20 if text.isdigit() else LIMIT


def get(key: str) -> bytes | None:
    """Return what was put under a key, unless it was dropped or its bytes were changed."""
    path = _path(key)
    try:
        data = path.read_bytes()
        os.utime(path)  # the least recently used goes first
    except OSError:
        return None
    return data[32:] if hashlib.sha256(data[32:]).digest() == data[:32] else None


def put(key: str, data: bytes) -> None:
    """Keep bytes under a key, and drop the least recently used beyond the limit; a full disk is no error."""
    path = _path(key)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as other:
            other.write(hashlib.sha256(data).digest() + data)
        Path(other.name).replace(path)
        _trim()


def _path(key: str) -> Path:
    return root() / hashlib.sha256(key.encode()).hexdigest()


def _trim() -> None:
    files = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in root().iterdir() if path.is_file())
    over = sum(size for _, size, _ in files) - limit()
    for _, size, path in files:
        if over <= 0:
            return
        path.unlink(missing_ok=True)
        over -= size
