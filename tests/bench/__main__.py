"""``python -m tests.bench`` runs every benchmark that needs no GPU."""

from tests.bench import bench_patcher, bench_scheduler

bench_patcher.main()
print()
bench_scheduler.main()
