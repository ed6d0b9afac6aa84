"""What is fetched or built once, and kept outside the repository.

The folder is ~/.cache/radiance-patch, or the one that RADIANCE_PATCH_CACHE names.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

HEARTBEAT_SECONDS = 10.0


class HarnessError(RuntimeError):
    """The harness could not do its part; the text says what, where, why and what to run next."""


def root() -> Path:
    """Return the cache folder, made if it is not there."""
    chosen = os.environ.get("RADIANCE_PATCH_CACHE")
    folder = Path(chosen) if chosen else Path.home() / ".cache" / "radiance-patch"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def say(text: str) -> None:
    """Print one progress line on stderr."""
    print(f"  {text}", file=sys.stderr, flush=True)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the lock called ``name`` against every other process that uses this cache."""
    path = root() / f"{name}.lock"
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{name}: waiting for another process that is making it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def ensure(name: str, build: Callable[[Path], None]) -> Path:
    """Return the cache entry ``name``, calling ``build(folder)`` to fill it the first time.

    The entry appears under its name only when it is complete, and is built by one process
    however many ask for it.
    """
    entry = root() / name
    if entry.exists():
        return entry
    with locked(name):
        if not entry.exists():
            unfinished = root() / f"{name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            started = time.monotonic()
            say(f"{name}: making it in {root()}")
            build(unfinished)
            unfinished.rename(entry)
            say(f"{name}: ready after {time.monotonic() - started:.0f} s")
    return entry


@contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """Give a folder that is removed afterwards, on the file system of the cache so that hard links work."""
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=root()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(
    command: Sequence[str | Path],
    what: str,
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    timeout: float = 1800.0,
) -> None:
    """Run ``command`` with its output in ``log``, saying every few seconds that it still runs.

    Raises ``HarnessError`` with the end of the log when it fails or exceeds ``timeout`` seconds.
    The command and all it started are gone when this returns, also after an interrupt.
    """
    started = time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )
        try:
            code = _wait(process, what, started, timeout)
        finally:
            _end(process)
    if code != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-40:])
        reason = f"took more than {timeout:.0f} s" if code is None else f"ended with exit code {code}"
        raise HarnessError(
            f"{what} {reason}\n  command: {' '.join(map(str, command))}\n{tail}\n"
            f"  next: run the command by hand; if its files look broken, rm -r {root()} and start again"
        )


def _wait(process: subprocess.Popen[bytes], what: str, started: float, timeout: float) -> int | None:
    """Return the exit code, or None when the time is over."""
    while (elapsed := time.monotonic() - started) < timeout:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(min(HEARTBEAT_SECONDS, timeout - elapsed))
        say(f"{what}: {time.monotonic() - started:.0f} s")
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the process group; the session was made for it alone."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
