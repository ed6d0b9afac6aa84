"""The compiled files Python keeps of a source, which must never outlive it."""

from __future__ import annotations

import glob
import importlib.util
import sys
from pathlib import Path


def beside(source: Path) -> list[Path]:
    """Every cached file of `source` in the tree: all Pythons, all optimisation levels, and the legacy place."""
    stem = glob.escape(source.stem)
    cached = sorted((source.parent / "__pycache__").glob(f"{stem}.*.pyc"))
    legacy = source.with_suffix(".pyc")
    return [*cached, legacy] if legacy.is_file() else cached


def elsewhere(source: Path) -> list[Path]:
    """Every cached file of `source` under PYTHONPYCACHEPREFIX, as far as this process knows it."""
    if sys.pycache_prefix is None:
        return []
    folder = Path(importlib.util.cache_from_source(str(source))).parent
    return sorted(folder.glob(f"{glob.escape(source.stem)}.*.pyc"))
