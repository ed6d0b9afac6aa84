"""Makes a plan's changes as one transaction: all of them, or, whatever happens, none.

The journal is a folder in the dist-info with the previous content of every file to be
changed. It is made whole before the first change and its renaming is the commit, so a
journal found later means: put everything back. A signal is heard between two steps
only, so no step of making or of putting back is ever cut in two.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from radiance_patch import bytecode, image, signals, state
from radiance_patch.errors import InconsistentError, WriteError
from radiance_patch.image import Image
from radiance_patch.plan import PAYLOAD, Change, Plan
from radiance_patch.signals import Check
from radiance_patch.target import Target

JOURNAL = "radiance-patch.journal"
NEW = f"{JOURNAL}.new"
DONE = f"{JOURNAL}.done"


@contextlib.contextmanager
def locked(target: Target, *, shared: bool, timeout: float, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock on the target's dist-info.

    timeout: seconds. say: told once when waiting. Raises WriteError when time is up.
    """
    with _write_errors(target.dist_info, "The installation cannot be locked."):
        handle = os.open(target.dist_info, os.O_RDONLY)
    try:
        with _write_errors(target.dist_info, "The installation cannot be locked."):
            _lock(handle, target, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, timeout, say)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, target: Target, kind: int, timeout: float, say: Callable[[str], None]) -> None:
    deadline = time.monotonic() + timeout
    waiting = False
    while True:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise WriteError(
                    f"Another radiance-patch still works on this vLLM after {timeout:g} s.",
                    where=target.dist_info,
                    next_step="wait for it, or give --lock-timeout SECONDS",
                ) from None
        else:
            return
        if not waiting:
            say(f"Waiting for another radiance-patch to finish with {target.dist_info} ...")
            waiting = True
        time.sleep(0.05)


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
    with _write_errors(target.dist_info, "What was cut off cannot be taken back yet."), signals.held() as check:
        for leftover in (target.dist_info / NEW, target.dist_info / DONE):
            if leftover.exists():
                shutil.rmtree(leftover)
        if not unfinished(target):
            return False
        _undo(target)
        check()
    return True


def run(target: Target, plan: Plan) -> None:
    """Make all changes of a plan; call with the lock held and nothing unfinished.

    On any failure, an interrupt included, everything made so far is taken back before
    the error goes on. Raises WriteError when a file or folder cannot be written.
    """
    if not plan.changes:
        return
    with _write_errors(target.dist_info, "A file cannot be written; nothing was changed."), signals.held() as check:
        for cache in plan.caches:
            cache.unlink(missing_ok=True)
        try:
            _write_journal(target, plan.changes, check)
            for change in plan.changes:
                check()
                if change.after:
                    _stage(target, change.path, change.after)
            for change in plan.changes:
                check()
                _make(target, change.path, present=change.after is not None)
            _verify(target, plan.changes)
            check()
            _close_journal(target)
        except BaseException:
            _roll_back(target)
            raise
        _drop_closed_journal(target)


def _write_journal(target: Target, changes: list[Change], check: Check) -> None:
    """Save the previous content of every file, durably, and only then give the journal its name."""
    new = target.dist_info / NEW
    new.mkdir()
    entries = []
    for number, change in enumerate(changes):
        check()
        if change.before and change.before.link is None:
            _write(new / str(number), change.before, named=target.site / change.path)
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
    (target.dist_info / JOURNAL).rename(target.dist_info / DONE)
    _sync(target.dist_info)


def _drop_closed_journal(target: Target) -> None:
    shutil.rmtree(target.dist_info / DONE, ignore_errors=True)  # what stays goes with the next command


def _roll_back(target: Target) -> None:
    try:
        if (target.dist_info / DONE).is_dir():  # the commit itself could not be made durable
            (target.dist_info / DONE).rename(target.dist_info / JOURNAL)
        if unfinished(target):
            _undo(target)
        else:
            shutil.rmtree(target.dist_info / NEW, ignore_errors=True)
    except OSError as error:
        raise InconsistentError(
            "The change failed, and taking it back failed too; the journal is kept.",
            where=error.filename or target.dist_info / JOURNAL,
            why=error.strerror or str(error),
            next_step="mend the cause, then: radiance-patch revert",
        ) from error


def _undo(target: Target) -> None:
    """Put back every file of the journal, last change first, and close it."""
    entries = _read_journal(target)
    for entry in entries:  # first, to free the space they take
        _staged(target.site / entry["path"]).unlink(missing_ok=True)
    for number, entry in reversed(list(enumerate(entries))):
        _put_back(target, entry, target.dist_info / JOURNAL / str(number))
    _drop_new_bytecode(target, entries)
    for entry in entries:
        _prune(target, target.site / entry["path"])
    _close_journal(target)
    _drop_closed_journal(target)


def _read_journal(target: Target) -> list[dict[str, Any]]:
    """Read a journal and prove all of it can be put back, before any of it is.

    Raises InconsistentError when it is damaged, or when a file was edited since.
    """
    journal = target.dist_info / JOURNAL
    try:
        entries: list[dict[str, Any]] = json.loads((journal / "journal.json").read_bytes())
        for number, entry in enumerate(entries):
            if entry["before"] and entry["before"]["link"] is None:
                image.from_meta(entry["before"], (journal / str(number)).read_bytes())
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InconsistentError(
            "The journal of what was cut off is damaged; nothing was changed.",
            where=journal,
            why=str(error),
            next_step=f"rm -r {journal}, then: {state.reinstall(target)}",
        ) from error
    for entry in entries:
        now, before = image.read(target.site / entry["path"]), entry["before"]
        known = (None, entry["after"], before and before["sha256"])
        if not entry["path"].endswith(".pyc") and (now and now.sha256) not in known:
            raise InconsistentError(
                "A file was edited while an apply or revert lay unfinished; it is left as it is.",
                where=target.site / entry["path"],
                why="its content is neither from before nor from after",
                next_step=f"save the edit elsewhere, then: {state.reinstall(target)}",
            )
    return entries


def _put_back(target: Target, entry: dict[str, Any], saved: Path) -> None:
    path, meta, now = target.site / entry["path"], entry["before"], image.read(target.site / entry["path"])
    # What is as it was need not be writable. It may also be a link to `saved`, by a recovery that
    # was cut off, and to rename one link of a file to another leaves both (rename(2)).
    if (now and now.meta()) == meta:
        return
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


def _drop_new_bytecode(target: Target, entries: list[dict[str, Any]]) -> None:
    """Remove what a process that started half way has cached of our files."""
    known = {target.site / entry["path"] for entry in entries}
    for source in known:
        if source.suffix == ".py":
            for path in set(bytecode.beside(source)) - known:
                path.unlink()
                _prune(target, path)


def _staged(path: Path) -> Path:
    return path.with_name(f".{path.name}.radiance-patch")


def _unstaged(path: Path) -> Path:
    """Return the file that a staged file is for; any other path as it is."""
    return path.with_name(path.name.removeprefix(".").removesuffix(".radiance-patch")) if _is_staged(path) else path


def _is_staged(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".radiance-patch")


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
    like, made = folder.parent.stat(), folder.stat()
    if (made.st_uid, made.st_gid) != (like.st_uid, like.st_gid):
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


def _write(path: Path, wanted: Image, *, like: Path | None = None, named: Path | None = None) -> None:
    """Create a file durably, with its metadata.

    like: an existing file whose extended attributes it gets. named: the file that an error
    is to name instead, as it means more to people.
    """
    try:
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
    except OSError as error:
        error.filename = str(named or path)  # calls on a descriptor name no file
        raise


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _write_errors(where: Path, what: str) -> Iterator[None]:
    """Turn OSError into WriteError, which says what to do about it."""
    advice = {
        errno.EROFS: "apply before the file system is made read-only",
        errno.ENOSPC: "free some space, then run the same command again",
        errno.EDQUOT: "free some space, then run the same command again",
        errno.EFBIG: "raise the file size limit (ulimit -f), then run the same command again",
    }
    try:
        yield
    except OSError as error:
        raise WriteError(
            what,
            where=_unstaged(Path(error.filename2 or error.filename or where)),
            why=error.strerror or str(error),
            next_step=advice.get(error.errno or 0, "run the same command as the user who owns the environment"),
        ) from error
