"""What `doctor` says of other hands: files of vLLM that are not as installed, and not so by this patch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from radiance_patch import record, state
from radiance_patch.errors import Exit, PatchError
from radiance_patch.finding import Finding
from radiance_patch.target import Target

# Compiled libraries are compared by size alone: to hash gigabytes takes longer than anybody waits for.
HASHED = 4 * 2**20
SHOWN = 5


def findings(target: Target) -> Iterator[Finding]:
    """Compare every file that RECORD lists, and look for sources that it does not list."""
    rows = record.rows((target.dist_info / "RECORD").read_bytes())
    try:
        old = state.load(target)
    except PatchError:  # the state of the patch is said elsewhere
        old = None
    ours = set(old.files) if old else set()
    listed = {name: row for name, row in rows.items() if name not in ours and _has_hash(row)}
    edited = [name for name, row in sorted(listed.items()) if _differs(target.site / name, row)]
    found = {path.relative_to(target.site).as_posix() for path in target.package.rglob("*.py")}
    extra = sorted(found - rows.keys() - ours)
    for names, what in ((edited, "other than RECORD lists it"), (extra, "in no RECORD")):
        if names:
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            text = f"{what}, by another patcher or by hand: {', '.join(names[:SHOWN])}{more}"
            yield Finding("foreign", f"{text}; next: {state.reinstall(target)}", Exit.INCONSISTENT)


def _has_hash(row: str) -> bool:
    return "sha256=" in row


def _differs(path: Path, row: str) -> bool:
    try:
        size = path.stat().st_size
        if size <= HASHED:
            return not record.matches(row, path.read_bytes())
        return not row.endswith(f",{size}")
    except FileNotFoundError:  # a trimmed image lacks files on purpose
        return False
