"""The benchmarks that need no GPU still run; nothing is timed here."""

import pytest

from tests.bench import bench_patcher, bench_scheduler
from tests.real.releases import site_packages


def test_what_the_patch_touches_is_there():
    files = bench_patcher.touched(site_packages(bench_patcher.RELEASE))
    assert len(files) > 5
    assert all(file.is_file() for file in files)


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
def test_hooks(engine):
    costs = bench_patcher.hooks(calls=50)
    assert {name.partition(".")[0] for name in costs} == {"an empty function", "draft", "width"}
    assert all(cost > 0 for cost in costs.values())


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
def test_the_scheduler_s_hooks(engine):
    costs = bench_scheduler.measure(engine, steps=40, rounds=1)
    assert set(costs) == {str(batch) for batch in bench_scheduler.BATCHES}
    assert all(part > 0 for parts in costs.values() for part in parts)
