"""The RECORD of the distribution: read rows, replace rows, leave every other byte alone."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
from collections.abc import Mapping
from pathlib import Path

from radiance_patch.errors import InconsistentError


def mentions(path: Path, name: str) -> bool:
    """Whether a RECORD file lists `name`. Raises InconsistentError when it lists nothing that can be read."""
    data = path.read_bytes()
    try:
        return name.encode() in data and name in rows(data)
    except (ValueError, csv.Error) as error:
        raise InconsistentError(
            "The list of vLLM's files cannot be read.",
            where=path,
            why=str(error),
            next_step="pip install --force-reinstall --no-deps vllm",
        ) from error


def rows(data: bytes) -> dict[str, str]:
    """Map each listed path to its row, as it stands in the file without its terminator."""
    return {_name(row): row for row, _ in _split(data) if row.strip()}


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
    lines = _split(data)
    newline = next((end for _, end in lines if end), "\n")
    unended = bool(lines) and not lines[-1][1]
    if unended:
        lines[-1] = (lines[-1][0], newline)
    left = dict(changes)
    kept: list[str] = []
    for old, end in lines:
        new = left.pop(name) if (name := _name(old)) in left else old
        kept += [] if new is None else [new + end]
    kept += [new + newline for _, new in sorted(left.items()) if new is not None]
    text = "".join(kept)
    return (text.removesuffix("\n").removesuffix("\r") if unended else text).encode()


def _split(data: bytes) -> list[tuple[str, str]]:
    """Split into rows and their terminators, which differ where several tools have written."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", data.decode("utf-8"))
    bare = [line.rstrip("\r\n") for line in lines]
    return [(row, line[len(row) :]) for row, line in zip(bare, lines, strict=True)]


def _name(line: str) -> str:
    return next(csv.reader([line]))[0] if line.strip() else ""
