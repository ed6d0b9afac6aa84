"""``python -m tests.bench`` runs every benchmark."""

from tests.bench import bench_patcher

bench_patcher.main()
