"""Runs the tests of the modules that need torch under the engine's Python, kernels in Triton's interpreter."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real import engine as real

ROOT = Path(__file__).parents[2]
INSIDE = Path(__file__).parent / "inside"
# pytest itself comes from this environment; the engine's own has what vLLM needs and no more.
TOOLS = Path(pytest.__file__).parents[1]


@pytest.mark.engine
@pytest.mark.xdist_group("kernels")
def test_kernels_and_their_references():
    engine = real.get()
    command = [engine.python, "-m", "pytest", INSIDE, "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore"]
    path = os.pathsep.join(map(str, (ROOT, engine.site, TOOLS)))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "RADIANCE"))}
    result = subprocess.run(
        [*map(str, command), "--rootdir", str(ROOT)],
        cwd=ROOT,
        env={**clean, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    sys.stdout.write(result.stdout[-4000:])
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
    passed = re.search(r"(\d+) passed", result.stdout)
    assert passed, result.stdout[-500:]
    assert int(passed[1]) >= 150  # a folder that was not collected passes too
