"""What holds for every test."""

from collections.abc import Iterator

import pytest

from tests.real import releases


@pytest.fixture(scope="session", autouse=True)
def _published_trees_stay_as_published() -> Iterator[None]:
    """Fail the session in which a test wrote through a hard link into the cached trees."""
    yield
    for release in releases.cached():
        releases.check(release)
