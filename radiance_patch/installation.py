"""What `doctor` says of how vLLM was installed: kind, Python, metadata, links, bytecode."""

from __future__ import annotations

import collections
import importlib.util
import json
import os
import re
from collections.abc import Iterator
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from radiance_patch import bytecode
from radiance_patch.errors import Exit
from radiance_patch.finding import Finding
from radiance_patch.hunk import Hunk
from radiance_patch.target import Target


def findings(target: Target, hunks: list[Hunk]) -> Iterator[Finding]:
    """Look at the installation; nothing is imported from it."""
    sources = sorted({target.package / hunk.file for hunk in hunks})
    metadata = _metadata(target)
    yield Finding(
        "vllm",
        f"{target.distribution} {target.version} in {target.site}, installed by {target.installer} {_origin(target)}",
    )
    yield from _python(target, metadata)
    if _parsed(metadata["Version"]) != target.version:
        yield Finding(
            "metadata",
            f"{target.dist_info.name} says {metadata['Version'] or 'no version'}, the code says {target.version}",
            Exit.INCONSISTENT,
        )
    yield from _links(sources)
    yield from _bytecode(sources)


def _metadata(target: Target) -> Message:
    path = target.dist_info / "METADATA"
    return HeaderParser().parsestr(path.read_text("utf-8", "replace") if path.is_file() else "")


def _origin(target: Target) -> str:
    """Say where the distribution came from (PEP 610)."""
    try:
        direct = json.loads((target.dist_info / "direct_url.json").read_text())
        kind = next(name for name in ("vcs_info", "archive_info", "dir_info") if name in direct)
    except FileNotFoundError:
        return "from a package index"
    except (ValueError, TypeError, StopIteration):
        return "from a place that direct_url.json does not tell"
    word = {"vcs_info": "a repository", "archive_info": "a file", "dir_info": "a folder"}[kind]
    return f"from {word}, {direct.get('url')}"


def _python(target: Target, metadata: Message) -> Iterator[Finding]:
    """Compare the Python that the folder belongs to, by its path, with what the metadata asks for."""
    found = re.search(r"[/\\]python(\d+\.\d+)[/\\](?:site|dist)-packages$", str(target.site))
    wanted = metadata["Requires-Python"]
    if not found:
        yield Finding("python", f"the folder's path does not tell which; vLLM asks for {wanted or 'any'}")
        return
    try:
        fits = not wanted or SpecifierSet(wanted).contains(f"{found[1]}.99", prereleases=True)
    except InvalidSpecifier:
        fits = False
    text = f"{found[1]}, and vLLM asks for {wanted or 'any'}"
    yield Finding("python", text, Exit.OK if fits else Exit.INCONSISTENT)


def _parsed(version: str | None) -> Version | None:
    try:
        return Version(version or "")
    except InvalidVersion:
        return None


def _links(sources: list[Path]) -> Iterator[Finding]:
    counts = [path.lstat().st_nlink for path in sources if path.is_file()]
    shared = [count for count in counts if count > 1]
    if shared:
        yield Finding(
            "links",
            f"{len(shared)} of {len(counts)} target files are hard links (up to {max(shared)} names each), as from a "
            "package cache; apply replaces them, the other names keep their content",
        )


def _bytecode(sources: list[Path]) -> Iterator[Finding]:
    prefix = os.environ.get("PYTHONPYCACHEPREFIX")
    if prefix:
        yield Finding("bytecode", f"is kept under {prefix}, which must be set for apply and revert too")
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        yield Finding("bytecode", "is not written (PYTHONDONTWRITEBYTECODE); what is there is used all the same")
    modes = collections.Counter(_mode(path) for source in sources for path in bytecode.beside(source))
    if modes:
        counted = ", ".join(f"{count} checked by {mode}" for mode, count in sorted(modes.items()))
        yield Finding("bytecode", f"of the target files: {counted}; apply and revert drop what they make stale")


def _mode(path: Path) -> str:
    """Say how Python tells that a cached file is stale (PEP 552: the flags are the second word of the header)."""
    header = path.read_bytes()[:8]
    if header[:4] != importlib.util.MAGIC_NUMBER:
        return "a Python of another version"
    return {0: "time and size", 1: "nothing", 3: "hash"}.get(int.from_bytes(header[4:], "little"), "nothing known")
