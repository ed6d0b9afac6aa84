"""Several at once: one works, the others wait and say so, and every one finds the tree whole."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.sandbox import (
    SCRIPT,
    SMALL,
    differences,
    dist_info,
    environment,
    false_rows,
    ok,
    ours,
    snapshot,
    tool,
    untouched,
)

WORKER = """
import subprocess, sys
script, site, seed = sys.argv[1:]
jobs = [["apply", "--only", "async_scheduler_cap"], ["revert"], ["status"]]
for turn in range(6):
    job = jobs[(int(seed) + turn) % 3]
    done = subprocess.run([script, *job, "--target", site], capture_output=True, text=True)
    print(job[0], done.returncode, "Traceback" in done.stderr)
"""


@contextmanager
def held(site: Path, kind: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold the lock as another radiance-patch does."""
    handle = os.open(dist_info(site), os.O_RDONLY)
    try:
        fcntl.flock(handle, kind)
        yield
    finally:
        os.close(handle)


@pytest.mark.parametrize("command", ["apply", "revert", "status"])
def test_the_lock_is_not_free_in_time(site: Path, command: str):
    with held(site), untouched(site):
        result = tool(command, "--json", "--lock-timeout", "0.2", site=site)
    assert result.exit == 6
    assert "Waiting for another radiance-patch" in result.err
    assert result.error["where"] == str(dist_info(site))
    assert "--lock-timeout" in result.error["next"]


def test_no_wait_at_all(site: Path):
    with held(site):
        assert tool("apply", "--lock-timeout", "0", site=site).exit == 6


def test_readers_do_not_wait_for_each_other(patched: Path):
    with held(patched, fcntl.LOCK_SH):
        ok("status", "--lock-timeout", "0", site=patched)
        ok("apply", "--check", *SMALL, "--lock-timeout", "0", site=patched)
        assert tool("apply", "--lock-timeout", "0", site=patched).exit == 6


def test_it_goes_on_when_the_other_has_finished(site: Path):
    command = [SCRIPT, "apply", *SMALL, "--target", site]
    with held(site):
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        )
        assert process.stderr
        assert "Waiting for another radiance-patch" in process.stderr.readline()
    process.communicate(timeout=120)
    assert process.returncode == 0
    ok("status", site=site)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_interrupted_while_it_waits(site: Path, number: signal.Signals):
    command = [SCRIPT, "apply", *SMALL, "--target", site]
    with held(site), untouched(site):
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        )
        assert process.stderr
        process.stderr.readline()
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted; nothing is half done" in err


def test_eight_at_once(site: Path):
    before = snapshot(site)
    command = [sys.executable, "-c", WORKER, SCRIPT, site]
    workers = [
        subprocess.Popen([*command, str(seed)], stdout=subprocess.PIPE, text=True, env=environment())
        for seed in range(8)
    ]
    lines = [line.split() for worker in workers for line in worker.communicate(timeout=600)[0].splitlines()]
    assert len(lines) == 8 * 6
    expected = {"apply": {"0"}, "revert": {"0"}, "status": {"0", "3"}}
    assert [line for line in lines if line[1] not in expected[line[0]] or line[2] != "False"] == []
    assert tool("status", site=site).exit in (0, 3)
    assert false_rows(site) == []
    ok("revert", site=site)
    assert differences(before, site) == []
    assert ours(site) == []


def test_a_thread_can_apply_too(site: Path):
    """Signals can be held in the main thread only; a library that calls from another one must not fail."""
    code = (
        "import sys, threading\n"
        "from radiance_patch import commit, plan, registry, state, target\n"
        "found = target.find(sys.argv[1])\n"
        "def work():\n"
        "    with commit.locked(found, shared=False, timeout=0, say=print):\n"
        "        commit.run(found, plan.for_apply(found, registry.hunks(), None, ['async_scheduler_cap']))\n"
        "thread = threading.Thread(target=work); thread.start(); thread.join()\n"
    )
    subprocess.run([sys.executable, "-c", code, site], check=True, cwd="/", env=environment())
    assert threading.current_thread() is threading.main_thread()
    ok("status", site=site)
