"""What `doctor` says of compiled code that a patch leaves behind: vLLM's own compile caches."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from radiance_patch import state
from radiance_patch.errors import Exit
from radiance_patch.finding import Finding
from radiance_patch.target import Target

FOLDER = "torch_compile_cache"


def findings(target: Target) -> Iterator[Finding]:
    """Look for entries that are older than the apply, or that an apply would outdate.

    vLLM names an entry after the text of the files it traced (compilation/backends.py) and
    verifies ahead-of-time ones, so that a stale one is never run, unless it is forced to.
    """
    folder = root() / FOLDER
    applied = state.state_file(target)
    limit = applied.stat().st_mtime if applied.is_file() else float("inf")
    stale = [path for path in _entries(folder) if path.stat().st_mtime < limit]
    if not stale:
        return
    size = sum(file.stat().st_size for path in stale for file in path.rglob("*") if file.is_file())
    count = f"{len(stale)} entr{'y' if len(stale) == 1 else 'ies'}, {size / 1e6:.1f} MB"
    when = "from before the patch" if applied.is_file() else "of the unpatched vLLM"
    text = f"{count} in {folder} {when}, of no use with it: vLLM compiles anew"
    forced = os.environ.get("VLLM_FORCE_AOT_LOAD") == "1" and applied.is_file()
    text += ", and VLLM_FORCE_AOT_LOAD=1 lets the start fail on them" if forced else ""
    yield Finding(
        "compiled", f"{text}. To clear them: rm -r {shlex.quote(str(folder))}", Exit.INCONSISTENT if forced else Exit.OK
    )


def root() -> Path:
    """Return where vLLM keeps its caches (envs.py, VLLM_CACHE_ROOT)."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("VLLM_CACHE_ROOT") or Path(base) / "vllm").expanduser()


def _entries(folder: Path) -> list[Path]:
    """Name the entries: folders by hash, and those of ahead-of-time compilation one level below."""
    found: list[Path] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        found += sorted(path.iterdir()) if path.name == "torch_aot_compile" else [path]
    return [path for path in found if path.is_dir()]
