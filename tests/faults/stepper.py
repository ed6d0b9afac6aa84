"""Runs the command line and stops it before its n-th change of the file system.

Run as a module it is the process that does so: it imports the tool once and forks for every
command, so that hundreds of steps take seconds. What is read out of a source file is kept between
the forks; what touches the disk is not.
"""

import ast
import dataclasses
import errno
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from radiance_patch import cli, locate, plan, registry, rewrite, target
from radiance_patch.hunk import Hunk
from radiance_patch.locate import Source
from radiance_patch.rewrite import Verdict
from tests.faults.sandbox import Result, environment

ROOT = Path(__file__).parents[2]
CHANGES = {
    *("os.rename", "os.remove", "os.link", "os.symlink", "os.mkdir", "os.rmdir"),
    *("os.chmod", "os.chown", "os.utime", "os.truncate", "os.setxattr"),
}


@dataclass(frozen=True)
class Stopped(Result):
    """How a command ended. fired: whether it came to the step it was to be stopped at."""

    fired: bool


class Stepper:
    """The process that forks the commands; close it as a context manager."""

    def __init__(self, site: Path) -> None:
        """Read the targets of `site` once, ahead of all commands."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__, site],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment(),
        )

    def __enter__(self) -> "Stepper":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self.process.communicate(timeout=60)

    def run(self, *args: str, site: Path, step: int = 0, action: str = "kill") -> Stopped:
        """Run a command; `action` ("kill", the name of a signal or errno) meets it before its `step`-th change."""
        assert self.process.stdin
        assert self.process.stdout
        job = {"args": [*args, "--target", str(site)], "step": step, "action": action}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        result = Stopped(**json.loads(self.process.stdout.readline()))
        assert "Traceback" not in result.err, result.err
        assert result.exit != 70, result
        return result

    def every_step(self, *args: str, site: Path, action: str = "kill") -> Iterator[Stopped]:
        """Run a command and stop it at its first step, its second, and so on; the caller resets the tree in between.

        What is yielded last ran to its end.
        """
        step = 0
        while True:
            step += 1
            result = self.run(*args, site=site, step=step, action=action)
            yield result
            if not result.fired:
                return


def _changes(event: str, args: tuple[Any, ...]) -> bool:
    if event == "open":
        return bool(args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    return event in CHANGES


def _stop_before(step: int, action: str, fired: int) -> None:
    """Let the `step`-th change of this process be met by a signal or an error; tell so on descriptor `fired`."""
    count = 0

    def change() -> None:
        nonlocal count
        count += 1
        if count != step:
            return
        os.write(fired, b"!")
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif action.startswith("SIG"):
            signal.raise_signal(getattr(signal, action))
        else:
            number = getattr(errno, action)
            raise OSError(number, os.strerror(number))

    sync = os.fsync

    def fsync(handle: int) -> None:
        change()
        sync(handle)

    os.fsync = fsync
    sys.addaudithook(lambda event, args: change() if _changes(event, args) else None)


def _child(job: dict[str, Any], out: int, err: int, fired: int) -> int:
    os.dup2(out, 1)
    os.dup2(err, 2)
    sys.argv = ["radiance-patch", *job["args"]]
    if job["step"]:
        _stop_before(job["step"], job["action"], fired)
    try:
        cli.main()
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        return int(end.code or 0)


def _serve(job: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as fired:
        child = os.fork()
        if child == 0:
            code = 99
            try:
                code = _child(job, out.fileno(), err.fileno(), fired.fileno())
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        texts = []
        for file in (out, err, fired):
            file.seek(0)
            texts.append(file.read().decode())
        return {
            "exit": os.waitstatus_to_exitcode(status),
            "out": texts[0],
            "err": texts[1],
            "fired": bool(texts[2]),
        }


def _remember_sources(site: str) -> None:
    """Parse, judge and patch every target once, in the process that all commands are forked from."""
    parse, judge, splice = locate.parse, rewrite.judge, rewrite.splice
    verdicts: dict[tuple[str, Version, bytes], Verdict] = {}
    spliced: dict[tuple[bytes, tuple[str, ...]], bytes] = {}

    def remembered_judge(hunk: Hunk, version: Version, source: Source) -> Verdict:
        key = (hunk.id, version, source.data)
        if key not in verdicts:
            verdicts[key] = judge(hunk, version, parse(source.data))
        return verdicts[key]

    def remembered_splice(source: Source, mine: list[Verdict]) -> bytes:
        key = (source.data, tuple(verdict.hunk.id for verdict in mine))
        if key not in spliced:
            locate.parse = parse
            spliced[key] = splice(parse(source.data), mine)
            locate.parse = unparsed
        return spliced[key]

    def unparsed(data: bytes) -> Source:
        return Source(data, tuple(data.splitlines(keepends=True)), ast.Module([], []))

    locate.parse, rewrite.judge, rewrite.splice = unparsed, remembered_judge, remembered_splice
    found, hunks = target.find(site), registry.hunks()
    plan.for_apply(found, hunks, None)
    for hunk in hunks:  # a test may apply some of them only
        plan.for_apply(found, hunks, None, [hunk.id])
    for key, verdict in verdicts.items():
        if verdict.insertion:
            place, variant = verdict.insertion
            place = dataclasses.replace(place, function=None)
            verdicts[key] = dataclasses.replace(verdict, insertion=(place, variant))
    gc.collect()
    gc.freeze()  # what the forks share stays shared


def main() -> None:
    """Serve commands from stdin until it is closed."""
    _remember_sources(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(_serve(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
