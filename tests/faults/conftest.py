"""Trees for the fault tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import sandbox
from tests.real import cache


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a trimmed copy of vLLM 0.33.0, unpatched."""
    return sandbox.small_tree(tmp_path / "site-packages")


@pytest.fixture
def patched(site: Path) -> Path:
    """Return the trimmed copy with one hunk applied."""
    sandbox.ok("apply", *sandbox.SMALL, site=site)
    return site


@pytest.fixture
def beside_cache() -> Iterator[Path]:
    """Return an empty folder on the file system of the cached trees, where hard links to them can be made."""
    with cache.scratch("faults") as folder:
        yield folder
