"""The RECORD of the distribution: read rows, replace rows, leave every other byte alone."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from collections.abc import Mapping
from pathlib import Path


def mentions(path: Path, name: str) -> bool:
    """Whether a RECORD file lists `name`."""
    try:
        return name.encode() in path.read_bytes() and name in rows(path.read_bytes())
    except OSError:
        return False


def rows(data: bytes) -> dict[str, str]:
    """Map each listed path to its row, as it stands in the file without its terminator."""
    return {_name(line): line for line in data.decode("utf-8").splitlines() if line.strip()}


def digest(data: bytes) -> str:
    """Hash content the way RECORD writes it: `sha256=` and unpadded URL-safe base64."""
    encoded = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return f"sha256={encoded.decode()}"


def row(name: str, data: bytes) -> str:
    """Write the row of a file (PEP 376: path, hash, size in bytes)."""
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow([name, digest(data), len(data)])
    return out.getvalue()


def matches(line: str, data: bytes) -> bool:
    """Whether a row's hash and size are those of `data`."""
    _, wanted, size, *_ = [*next(csv.reader([line])), "", ""]
    return wanted == digest(data) and size in ("", str(len(data)))


def edit(data: bytes, changes: Mapping[str, str | None]) -> bytes:
    """Replace the rows of some paths (None: drop), and append the rows of new ones.

    Undone by the inverse mapping byte for byte: rows keep their place, and the last
    row keeps its missing terminator if it had none.
    """
    newline = "\r\n" if b"\r\n" in data else "\n"
    text = data.decode("utf-8")
    ended = not text or text.endswith("\n")
    lines = text.split(newline)
    if ended:
        lines.pop()
    left = dict(changes)
    kept: list[str] = []
    for line in lines:
        name = _name(line)
        if name not in left:
            kept.append(line)
            continue
        new = left.pop(name)
        if new is not None:
            kept.append(new)
    kept += [new for _, new in sorted(left.items()) if new is not None]
    return (newline.join(kept) + (newline if ended and kept else "")).encode()


def _name(line: str) -> str:
    return next(csv.reader([line]))[0] if line.strip() else ""
