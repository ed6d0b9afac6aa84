"""Makes a plan's changes as one transaction: all of them, or, whatever happens, none.

The journal is a folder in the dist-info with the previous content of every file to be
changed. It is made whole before the first change and its removal is the commit, so a
journal found later means: put everything back.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import signal
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from radiance_patch import image, state
from radiance_patch.errors import InconsistentError, PatchError, WriteError
from radiance_patch.image import Image
from radiance_patch.plan import PAYLOAD, Change, Plan
from radiance_patch.target import Target

JOURNAL = "radiance-patch.journal"


@contextlib.contextmanager
def locked(target: Target, *, shared: bool, timeout: float, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock on the target's dist-info.

    timeout: seconds. say: told once when waiting. Raises WriteError when time is up.
    """
    handle = os.open(target.dist_info, os.O_RDONLY)
    try:
        deadline = time.monotonic() + timeout
        waiting = False
        while True:
            try:
                fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise WriteError(
                        f"Another radiance-patch still works on this vLLM after {timeout:g} s.",
                        where=target.dist_info,
                        next_step="wait for it, or give --lock-timeout SECONDS",
                    ) from None
                if not waiting:
                    say(f"Waiting for another radiance-patch to finish with {target.dist_info} ...")
                    waiting = True
                time.sleep(0.05)
        yield
    finally:
        os.close(handle)


def unfinished(target: Target) -> bool:
    """Whether an apply or revert was cut off and not yet taken back."""
    return (target.dist_info / JOURNAL).is_dir()


def unfinished_error(target: Target) -> InconsistentError:
    """Return what to say of a journal where nothing may be written."""
    return InconsistentError(
        "An apply or revert was cut off.",
        where=target.dist_info / JOURNAL,
        why="its journal is still there",
        next_step="radiance-patch revert   (takes it back; apply does too, and goes on)",
    )


def recover(target: Target) -> bool:
    """Take back an unfinished apply or revert; call with the lock held. Returns whether there was one.

    Raises InconsistentError when a file was edited since, WriteError when one cannot be written.
    """
    for leftover in (f"{JOURNAL}.new", f"{JOURNAL}.done"):
        shutil.rmtree(target.dist_info / leftover, ignore_errors=True)
    if not unfinished(target):
        return False
    with _write_errors(target.dist_info / JOURNAL):
        _undo(target)
    return True


def run(target: Target, plan: Plan) -> None:
    """Make all changes of a plan; call with the lock held and nothing unfinished.

    On any failure, an interrupt included, everything made so far is taken back before
    the error goes on. Raises WriteError when a file or folder cannot be written.
    """
    if not plan.changes:
        return
    with _write_errors(target.dist_info), _terminated_as_interrupt():
        for cache in plan.caches:
            cache.unlink(missing_ok=True)
        try:
            _write_journal(target, plan.changes)
            for change in plan.changes:
                if change.after:
                    _stage(target, change.path, change.after)
            for change in plan.changes:
                _make(target, change.path, present=change.after is not None)
            _verify(target, plan.changes)
        except BaseException:
            with _undisturbed():
                _roll_back(target)
            raise
        _close_journal(target)


def _write_journal(target: Target, changes: list[Change]) -> None:
    """Save the previous content of every file, durably, and only then give the journal its name."""
    new = target.dist_info / f"{JOURNAL}.new"
    new.mkdir()
    entries = []
    for number, change in enumerate(changes):
        if change.before and change.before.link is None:
            _write(new / str(number), change.before)
        entries.append(
            {
                "path": change.path,
                "before": change.before.meta() if change.before else None,
                "after": change.after.sha256 if change.after else None,
            }
        )
    with (new / "journal.json").open("xb") as file:
        file.write(json.dumps(entries).encode())
        file.flush()
        os.fsync(file.fileno())
    _sync(new)
    new.rename(target.dist_info / JOURNAL)
    _sync(target.dist_info)


def _close_journal(target: Target) -> None:
    done = target.dist_info / f"{JOURNAL}.done"
    (target.dist_info / JOURNAL).rename(done)
    _sync(target.dist_info)
    shutil.rmtree(done)


def _roll_back(target: Target) -> None:
    if not unfinished(target):
        shutil.rmtree(target.dist_info / f"{JOURNAL}.new", ignore_errors=True)
        return
    try:
        _undo(target)
    except OSError as error:
        raise InconsistentError(
            "The change failed, and taking it back failed too; the journal is kept.",
            where=error.filename or target.dist_info / JOURNAL,
            why=error.strerror or str(error),
            next_step="mend the cause, then: radiance-patch revert",
        ) from error


def _undo(target: Target) -> None:
    """Put back every file of the journal, last change first, and close it."""
    journal = target.dist_info / JOURNAL
    entries = json.loads((journal / "journal.json").read_bytes())
    for entry in entries:  # first, to free the space they take
        _staged(target.site / entry["path"]).unlink(missing_ok=True)
    for number, entry in reversed(list(enumerate(entries))):
        _put_back(target, entry, journal / str(number))
    for entry in entries:
        _prune(target, target.site / entry["path"])
    _close_journal(target)


def _put_back(target: Target, entry: dict[str, Any], saved: Path) -> None:
    path = target.site / entry["path"]
    now, meta = image.read(path), entry["before"]
    known = (None, entry["after"], meta and meta["sha256"])
    if not entry["path"].endswith(".pyc") and (now.sha256 if now else None) not in known:
        raise InconsistentError(
            "A file was edited while an apply or revert lay unfinished; it is left as it is.",
            where=path,
            why="its content is neither from before nor from after",
            next_step=f"save the edit elsewhere, then: {state.reinstall(target)}",
        )
    if meta is None:
        _make(target, entry["path"], present=False)
        return
    if meta["link"] is not None:
        _staged(path).symlink_to(meta["link"])
    else:
        _make_folders(target, path.parent)
        try:
            os.link(saved, _staged(path))  # takes no space, which may be what ran out
        except OSError:
            _write(_staged(path), image.from_meta(meta, saved.read_bytes()))
    _make(target, entry["path"], present=True)


def _staged(path: Path) -> Path:
    return path.with_name(f".{path.name}.radiance-patch")


def _stage(target: Target, name: str, wanted: Image) -> None:
    """Write a file beside its place; every folder and all space are proved before anything is replaced."""
    path = target.site / name
    _make_folders(target, path.parent)
    staged = _staged(path)
    staged.unlink(missing_ok=True)
    if wanted.link is not None:
        staged.symlink_to(wanted.link)
    else:
        _write(staged, wanted, like=path if path.is_file() and not path.is_symlink() else None)


def _make_folders(target: Target, folder: Path) -> None:
    """Make a folder as open as the one it lies in: a strict umask must not hide it from the server's user."""
    if folder.is_dir():
        return
    _make_folders(target, folder.parent)
    folder.mkdir()
    like = folder.parent.stat()
    os.chown(folder, like.st_uid, like.st_gid)
    folder.chmod(stat.S_IMODE(like.st_mode))


def _make(target: Target, name: str, *, present: bool) -> None:
    """Move a staged file to its place, or remove the file there; never write into it, as others may share its inode."""
    path = target.site / name
    if present:
        _staged(path).replace(path)
    else:
        path.unlink(missing_ok=True)
    if path.parent.is_dir():
        _sync(path.parent)
    _prune(target, path)


def _verify(target: Target, changes: list[Change]) -> None:
    for change in changes:
        found = image.read(target.site / change.path)
        if (found.data if found else None) != (change.after.data if change.after else None):
            raise WriteError(
                "A file does not hold what was just written to it.",
                where=target.site / change.path,
                next_step="check the file system, then: radiance-patch apply",
            )


def _prune(target: Target, path: Path) -> None:
    """Remove the folders of ours that a file's removal leaves empty."""
    roots = (target.site / PAYLOAD, state.folder(target))
    folder = path.parent
    while any(folder == root or root in folder.parents for root in roots):
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def _write(path: Path, wanted: Image, like: Path | None = None) -> None:
    """Create a file durably, with its metadata. like: an existing file whose extended attributes it gets."""
    with path.open("xb") as file:
        file.write(wanted.data)
        file.flush()
        if like is not None:
            shutil.copystat(like, path)
        owner = os.fstat(file.fileno())
        if (owner.st_uid, owner.st_gid) != (wanted.uid, wanted.gid):
            os.fchown(file.fileno(), wanted.uid, wanted.gid)
        os.fchmod(file.fileno(), wanted.mode)
        os.utime(file.fileno(), ns=(wanted.mtime_ns, wanted.mtime_ns))
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _write_errors(where: Path) -> Iterator[None]:
    """Turn OSError into WriteError, which says what to do about it."""
    advice = {
        errno.EROFS: "apply before the file system is made read-only",
        errno.ENOSPC: "free some space, then run the same command again",
        errno.EFBIG: "raise the file size limit (ulimit -f), then run the same command again",
    }
    try:
        yield
    except PatchError:
        raise
    except OSError as error:
        raise WriteError(
            "A file cannot be written; nothing was changed.",
            where=error.filename or where,
            why=error.strerror or str(error),
            next_step=advice.get(error.errno or 0, "run the same command as the user who owns the environment"),
        ) from error


@contextlib.contextmanager
def _terminated_as_interrupt() -> Iterator[None]:
    """Let SIGTERM roll back as Ctrl-C does; a container is stopped with it."""

    def interrupt(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    try:
        previous = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold back a second Ctrl-C until everything is put back."""
    signals = {signal.SIGINT, signal.SIGTERM}
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
