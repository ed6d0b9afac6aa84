"""Site-packages folders: shared as a package manager shares them, and compared byte for byte."""

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.real.cache import HarnessError


class Entry(NamedTuple):
    """One path of a tree: a folder's digest is empty, a link's is that of its target's name."""

    sha256: str
    mode: int
    is_link: bool


Fingerprint = dict[str, Entry]


def link_packages(source: Path, dest: Path, names: Sequence[str]) -> None:
    """Make ``dest`` a site-packages folder that holds the top-level ``names`` of ``source``.

    Files are hard links, as uv makes them from its cache, so that a write in place shows in
    ``source``; RECORD is a private copy, as it is with uv.
    """
    for name in names:
        shutil.copytree(source / name, dest / name, symlinks=True, copy_function=_link)


def _link(source: str, dest: str) -> str:
    if Path(source).name == "RECORD":
        return str(shutil.copy2(source, dest))
    try:
        os.link(source, dest, follow_symlinks=False)
    except OSError as error:
        raise HarnessError(
            f"cannot hard-link {source} to {dest}: {error.strerror}\n"
            "  the two must lie on one file system: make the folder with tests.real.cache.scratch"
        ) from error
    return dest


def fingerprint(tree: Path, inside: Sequence[str] | None = None) -> Fingerprint:
    """Return digest, mode and kind of every path under ``tree``, by relative path.

    With ``inside``, only those top-level names are walked; the others are listed, so that a
    stray file beside them shows all the same.
    """
    return {str(path.relative_to(tree)): _entry(path) for path in sorted(_walk(tree, inside))}


def _walk(tree: Path, inside: Sequence[str] | None) -> Iterator[Path]:
    for top in tree.iterdir():
        yield top
        if top.is_dir() and not top.is_symlink() and (inside is None or top.name in inside):
            yield from top.rglob("*")


def _entry(path: Path) -> Entry:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        content = os.fsencode(path.readlink())
    elif stat.S_ISREG(mode):
        content = path.read_bytes()
    else:
        return Entry("", stat.S_IMODE(mode), False)
    return Entry(hashlib.sha256(content).hexdigest(), stat.S_IMODE(mode), stat.S_ISLNK(mode))


def changes(before: Fingerprint, after: Fingerprint) -> list[str]:
    """Return one line for each path that was added, removed or changed; empty when the trees are equal."""
    lines = [f"added: {path}" for path in after.keys() - before.keys()]
    lines += [f"removed: {path}" for path in before.keys() - after.keys()]
    lines += [
        f"changed: {path}: {before[path]} -> {after[path]}"
        for path in before.keys() & after.keys()
        if before[path] != after[path]
    ]
    return sorted(lines)


def without_bytecode(tree: Fingerprint) -> Fingerprint:
    """Return ``tree`` less Python's own caches, which come and go with every import."""
    return {path: entry for path, entry in tree.items() if "__pycache__" not in path}


def save(tree: Fingerprint, path: Path) -> None:
    """Write ``tree`` to ``path`` as JSON."""
    path.write_text(json.dumps(tree))


def load(path: Path) -> Fingerprint:
    """Return the fingerprint that ``save`` wrote to ``path``."""
    return {name: Entry(*values) for name, values in json.loads(path.read_text()).items()}
