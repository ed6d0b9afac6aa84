"""Trees for the fault tests."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import sandbox
from tests.real import cache


@pytest.fixture(scope="session", autouse=True)
def _signals_reach_the_tool() -> None:
    """Undo what nohup and a shell's background jobs ignore, and what the tool would inherit."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


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
