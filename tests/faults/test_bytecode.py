"""Compiled files must not outlive their source: a new Python runs the patched code, and after revert the original.

What Python would run is asked of its own loader, in a new process: `get_code` reads the cache or
compiles the source by the rules of an import, and nothing of vLLM (torch, CUDA) is needed.
"""

import itertools
import os
import py_compile
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from tests.faults.sandbox import SMALL, SMALL_FILE, compiled, differences, environment, ok, snapshot, tool
from tests.faults.stepper import Stepper

ASK = """
import importlib.machinery, sys
name = "vllm.v1.core.sched.async_scheduler"
code = importlib.machinery.SourceFileLoader(name, sys.argv[1]).get_code(name)
seen, todo = set(), [code]
while todo:
    code = todo.pop()
    seen.update(code.co_names)
    todo += [const for const in code.co_consts if hasattr(const, "co_names")]
print("_radiance_width" in seen)
"""


def runs_patched(site: Path, *options: str, env: dict[str, str] | None = None) -> bool:
    """Whether a new Python would run the patched code; like any import, it leaves the file compiled."""
    command = [sys.executable, *options, "-c", ASK, site / SMALL_FILE]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment(env))
    return done.stdout.strip() == "True"


def cached(site: Path, optimisation: str = "") -> Path:
    return Path(cache_from_source(str(site / SMALL_FILE), optimization=optimisation))


@pytest.mark.parametrize("options", [(), ("-O",), ("-OO",)], ids=["plain", "O", "OO"])
def test_a_fresh_python_runs_what_is_there(site: Path, options: tuple[str, ...]):
    assert not runs_patched(site, *options)
    ok("apply", *SMALL, site=site)
    assert runs_patched(site, *options)
    ok("revert", site=site)
    assert not runs_patched(site, *options)


@pytest.mark.parametrize("mode", list(py_compile.PycInvalidationMode), ids=lambda mode: mode.name)
@pytest.mark.parametrize("optimise", [0, 1, 2])
def test_saved_bytecode_comes_back_byte_for_byte(site: Path, mode: py_compile.PycInvalidationMode, optimise: int):
    """An unchecked-hash file is run whatever the source holds, so it has to go for as long as the patch is in."""
    py_compile.compile(str(site / SMALL_FILE), optimize=optimise, invalidation_mode=mode, doraise=True)
    options = ("-O" * optimise,) if optimise == 1 else ("-OO",) if optimise else ()
    before = snapshot(site)
    assert not runs_patched(site, *options)
    ok("apply", *SMALL, site=site)
    assert runs_patched(site, *options)
    ok("revert", site=site)
    assert differences(before, site) == []
    assert not runs_patched(site, *options)


def test_same_size_and_same_second(site: Path, tmp_path: Path):
    """Python trusts a cached file whose source has the size and the second it was compiled from
    (python/cpython#121376): the time of a patched file never is that of one compiled before."""
    ahead = 4_000_000_000  # a source from the future, as clocks that were set back leave them
    os.utime(site / SMALL_FILE, (ahead, ahead))
    ok("apply", *SMALL, site=site)
    assert (site / SMALL_FILE).stat().st_mtime > ahead
    assert runs_patched(site)


def test_bytecode_of_the_original_that_somebody_put_back(site: Path):
    """A cache restored over the patched tree: Python would run the original, status sees it, apply mends it."""
    py_compile.compile(str(site / SMALL_FILE), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    old = cached(site).read_bytes()
    ok("apply", *SMALL, site=site)
    cached(site).write_bytes(old)
    assert not runs_patched(site)
    status = tool("status", "--json", site=site)
    assert status.exit == 5
    assert str(cached(site)) in status.body["problems"][0]
    ok("apply", *SMALL, site=site)
    assert runs_patched(site)
    ok("status", site=site)


def test_a_compiled_file_beside_its_source(site: Path):
    legacy = (site / SMALL_FILE).with_suffix(".pyc")
    py_compile.compile(str(site / SMALL_FILE), cfile=str(legacy))
    before = snapshot(site)
    ok("apply", *SMALL, site=site)
    assert not legacy.exists()
    ok("revert", site=site)
    assert differences(before, site) == []


def test_caches_of_every_python(site: Path):
    """Several interpreters may share the folder; a cache of each is dropped and given back."""
    py_compile.compile(str(site / SMALL_FILE))
    other = cached(site).with_name("async_scheduler.cpython-399.opt-2.pyc")
    other.write_bytes(b"compiled by another one")
    before = snapshot(site)
    ok("apply", *SMALL, site=site)
    assert not other.exists()
    ok("revert", site=site)
    assert differences(before, site) == []


@pytest.mark.parametrize(
    "mode", [py_compile.PycInvalidationMode.TIMESTAMP, py_compile.PycInvalidationMode.UNCHECKED_HASH]
)
def test_a_prefix_for_bytecode(site: Path, tmp_path: Path, mode: py_compile.PycInvalidationMode):
    env = {"PYTHONPYCACHEPREFIX": str(tmp_path / "caches")}
    code = "import py_compile as p, sys; p.compile(sys.argv[1], invalidation_mode=p.PycInvalidationMode[sys.argv[2]])"

    def compile_there() -> None:
        subprocess.run([sys.executable, "-c", code, site / SMALL_FILE, mode.name], check=True, env=environment(env))

    compile_there()
    before = snapshot(site)
    ok("apply", *SMALL, site=site, env=env)
    assert runs_patched(site, env=env)
    compile_there()
    ok("revert", site=site, env=env)
    assert not runs_patched(site, env=env)
    assert differences(before, site) == []


def test_a_whole_compiled_tree(site: Path):
    """As pip leaves it, then served from while the patch is in."""
    compiled(site)
    compiled(site, "-OO")
    before = snapshot(site)
    ok("apply", site=site)
    compiled(site / "vllm")
    compiled(site / "vllm", "-OO")
    ok("status", site=site)
    ok("revert", site=site)
    assert differences(before, site) == []


def test_a_process_that_starts_while_an_apply_lies_unfinished(site: Path):
    """It caches the payload and the patched target; recovery leaves none of that."""
    compiled(site / "vllm/v1/core/sched")
    before, caches = snapshot(site), [0, 0]
    with Stepper(site) as stepper:
        for step in itertools.count(5, 5):
            stopped = stepper.run("apply", *SMALL, site=site, step=step)
            if (site / "vllm/_radiance").is_dir():
                compiled(site / "vllm/_radiance")
                caches[0] += 1
            if b"_radiance" in (site / SMALL_FILE).read_bytes():
                py_compile.compile(str(site / SMALL_FILE), optimize=1)
                caches[1] += 1
            ok("revert", site=site)
            assert differences(before, site) == []
            if not stopped.fired:
                break
    assert min(caches) > 2
