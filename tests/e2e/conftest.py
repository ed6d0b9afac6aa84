"""One engine, one patched copy of its vLLM and one stock run, shared by all tests here."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real import cache
from tests.real import engine as real
from tests.real.engine import Engine, Served
from tests.real.jobs import JOB


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Return the built engine, which no other test process and no demo uses meanwhile."""
    with cache.locked("engine-in-use"):
        yield real.get()


@pytest.fixture(scope="session")
def patched(engine: Engine) -> Iterator[Path]:
    """Return an overlay with the patch in."""
    with real.patched_overlay(engine) as site:
        yield site


@pytest.fixture(scope="session")
def stock(engine: Engine) -> Served:
    """Return what the stock engine makes of JOB."""
    return real.serve(engine, JOB)
