"""What is to be written: target and hunks in, verdicts and changes out. Nothing is written here."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from radiance_patch import __version__, bytecode, image, locate, record, refusal, registry, rewrite, state
from radiance_patch.errors import DriftError, InconsistentError, PatchError, Puzzle
from radiance_patch.hunk import Hunk
from radiance_patch.image import Image
from radiance_patch.locate import LocateError
from radiance_patch.rewrite import Verdict
from radiance_patch.state import FileState, State
from radiance_patch.target import Target

PAYLOAD = "vllm/_radiance"

# A process that starts half way must find whatever it imports: what is called is there
# before its callers, and goes after them. RECORD lists a file before the file exists, so
# that an uninstall in between leaves nothing behind.
APPLY_ORDER = ("record", "state", "payload", "target", "bytecode", "gone")
REVERT_ORDER = ("target", "bytecode", "payload", "gone", "state", "record")


@dataclass(frozen=True)
class Change:
    """One file to replace, to create (before is None) or to remove (after is None); path relative to the site."""

    path: str
    before: Image | None
    after: Image | None


@dataclass(frozen=True)
class Plan:
    """Verdicts on all hunks, and the changes that lead to the asked state, in the order to make them.

    refusal: why nothing may be written, or None. caches: bytecode outside the tree to drop.
    """

    verdicts: list[Verdict] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    refusal: PatchError | None = None
    caches: list[Path] = field(default_factory=list)


@dataclass(frozen=True)
class _Ours:
    """A file of the patch: its image before the first apply, and its content under the patch."""

    before: Image | None
    after: bytes | None


def for_apply(
    target: Target, hunks: list[Hunk], old: State | None, only: Iterable[str] = (), *, accept: bool = False
) -> Plan:
    """Plan an apply.

    old: the state of an earlier apply; then the originals saved there are patched, never
    the patched files. only: ids to apply, all when empty. accept: apply hunks that need
    review. Raises InconsistentError when a file is neither vLLM's nor ours.
    """
    _check_owned(target, old)
    hunks = registry.at(hunks, target.public)
    asked = sorted(set(only)) or None
    pristine = _pristine(target, {f"vllm/{hunk.file}" for hunk in hunks}, old)
    verdicts = _judge([hunk for hunk in hunks if asked is None or hunk.id in asked], target, pristine)
    refused = refusal.of(target, hunks, verdicts, pristine, accept=accept)
    if refused:
        return Plan(verdicts, refusal=refused)
    ours = {**_payload(target, old), **_patched(target, pristine, verdicts)}
    for name in [name for name, file in ours.items() if file.before]:
        ours.update(_saved_bytecode(target, name, old))
    new = _state(target, old, ours, verdicts, asked)
    changes = _changes(target, _wanted(target, old, new, ours), APPLY_ORDER)
    return Plan(verdicts, changes, caches=_caches(target, changes))


def for_revert(target: Target, old: State) -> Plan:
    """Plan a revert: every file as it was before the first apply, bytecode, times and RECORD included."""
    _check_owned(target, old)
    wanted = {name: state.original(target, name, entry) if entry.before else None for name, entry in old.files.items()}
    wanted |= {_relative(target, path): None for path in state.own_files(target)}
    wanted |= _record(target, dict(old.rows))
    changes = _changes(target, wanted, REVERT_ORDER)
    return Plan([], changes, caches=_caches(target, changes))


def _check_owned(target: Target, old: State | None) -> None:
    """Raise InconsistentError for a file that is neither what an apply wrote nor what it found."""
    for name, entry in (old.files if old else {}).items():
        path = target.site / name
        _stay_inside(target, path)
        found = image.read(path)
        if name.endswith(".pyc") or found is None:  # Python writes the one; there is nothing to lose in the other
            continue
        if found.sha256 not in (entry.after, entry.before and entry.before["sha256"]):
            raise InconsistentError(
                "A patched file was edited after apply; it is left as it is.",
                where=path,
                why="its content is neither the original nor what radiance-patch wrote",
                next_step=f"save the edit elsewhere, then: {state.reinstall(target)}",
                puzzle=Puzzle(path, name, found.data, rebuild=functools.partial(rebuilt, target, old, name)),
            )


def rebuilt(target: Target, old: State | None, name: str) -> bytes | None:
    """Make once more what an apply wrote to a file; None where another radiance-patch wrote it."""
    assert old is not None, name
    entry = old.files[name]
    if entry.before is None:
        data = registry.payload().get(Path(name).name)
    else:
        pristine = {name: state.original(target, name, entry)}
        hunks = registry.at(registry.hunks(), target.public)
        placed = [hunk for hunk in hunks if hunk.id in old.hunks and f"vllm/{hunk.file}" == name]
        patched = _patched(target, pristine, _judge(placed, target, pristine))
        data = patched[name].after if name in patched else None
    return data if data is not None and state.sha256(data) == entry.after else None


def _stay_inside(target: Target, path: Path) -> None:
    """Refuse a file whose folder is a link out of the tree: replacing it would change another tree."""
    if not target.holds(path):
        raise InconsistentError(
            "A folder of vLLM is a link to another place.",
            where=path.parent,
            why=f"it leads to {path.parent.resolve()}",
            next_step=state.reinstall(target),
        )


def _pristine(target: Target, names: set[str], old: State | None) -> dict[str, Image]:
    """Read files as vLLM shipped them: the saved originals, else those on disk whose RECORD hash fits."""
    rows = record.rows((target.dist_info / "RECORD").read_bytes())
    found: dict[str, Image] = {}
    for name in sorted(names):
        if old and name in old.files:
            found[name] = state.original(target, name, old.files[name])
            continue
        path = target.site / name
        _stay_inside(target, path)
        now = image.read(path)
        if now is None and name in rows:
            raise InconsistentError(
                "A file of vLLM is missing.",
                where=path,
                why="RECORD lists it, so it was there when vLLM was installed",
                next_step=state.reinstall(target),
            )
        if now is None:
            continue
        if name not in rows or not record.matches(rows[name], now.data):
            raise InconsistentError(
                "A file of vLLM was edited by someone else.",
                where=path,
                why="its content is not what RECORD lists for it" if name in rows else "RECORD does not list it",
                next_step=state.reinstall(target),
                puzzle=Puzzle(path, name, now.data, (target.distribution, target.public)) if name in rows else None,
            )
        if rewrite.SENTINEL.encode() in now.data:
            raise InconsistentError(
                "A file is patched, and no apply recorded it.",
                where=path,
                why="the record of an earlier patch was deleted, or the file was packed with it",
                next_step=state.reinstall(target),
            )
        found[name] = now
    return found


def _judge(hunks: list[Hunk], target: Target, pristine: dict[str, Image]) -> list[Verdict]:
    verdicts: list[Verdict] = []
    for file in sorted({hunk.file for hunk in hunks}):
        mine = [hunk for hunk in hunks if hunk.file == file]
        found = pristine.get(f"vllm/{file}")
        if found is None:
            verdicts += [Verdict(hunk, "missing-file", f"this vLLM has no {file}") for hunk in mine]
            continue
        try:
            source = locate.parse(found.data)
        except LocateError as error:
            verdicts += [Verdict(hunk, "drifted", f"{file} {error.reason}", error.line) for hunk in mine]
            continue
        verdicts += [rewrite.judge(hunk, target.public, source) for hunk in mine]
    return sorted(verdicts, key=lambda verdict: verdict.hunk.id)


def _patched(target: Target, pristine: dict[str, Image], verdicts: list[Verdict]) -> dict[str, _Ours]:
    """Splice each file's hunks into its original."""
    patched: dict[str, _Ours] = {}
    for name, found in pristine.items():
        mine = [verdict for verdict in verdicts if f"vllm/{verdict.hunk.file}" == name and verdict.insertion]
        if not mine:
            continue
        try:
            patched[name] = _Ours(found, rewrite.splice(locate.parse(found.data), mine))
        except LocateError as error:
            raise DriftError(
                f"The hunks for {name} cannot be placed safely.",
                where=target.site / name,
                why=error.reason,
                next_step="please report this with the output of: radiance-patch doctor",
            ) from error
    return patched


def _payload(target: Target, old: State | None) -> dict[str, _Ours]:
    """Name the payload's files. Raises InconsistentError when its folder holds files of someone else."""
    folder = target.site / PAYLOAD
    _stay_inside(target, folder / "any")
    strange = [path for path in sorted(folder.glob("*.py")) if old is None or _relative(target, path) not in old.files]
    if strange:
        raise InconsistentError(
            "The payload folder holds a file that no apply recorded.",
            where=strange[0],
            why="the record of an earlier patch was deleted, or another tool uses the folder",
            next_step=f"rm -r {folder}, then: {state.reinstall(target)}",
        )
    return {f"{PAYLOAD}/{name}": _Ours(None, data) for name, data in registry.payload().items()}


def _saved_bytecode(target: Target, name: str, old: State | None) -> dict[str, _Ours]:
    """Return the cached files of a source to give back on revert: those found at its first apply."""
    if old and name in old.files:
        source = Path(name)
        mine = {
            other: entry
            for other, entry in old.files.items()
            if other.endswith(".pyc")
            and Path(other).name.startswith(f"{source.stem}.")
            and source.parent in (Path(other).parent, Path(other).parent.parent)
        }
        return {other: _Ours(state.original(target, other, entry), None) for other, entry in mine.items()}
    return {_relative(target, path): _Ours(image.read(path), None) for path in bytecode.beside(target.site / name)}


def _state(
    target: Target,
    old: State | None,
    ours: dict[str, _Ours],
    verdicts: list[Verdict],
    asked: list[str] | None,
) -> State:
    """Describe the apply; `rows` keeps the RECORD row each path had before the first one."""
    rows: dict[str, str | None] = {
        **record.rows((target.dist_info / "RECORD").read_bytes()),
        **(old.rows if old else {}),
    }
    placed = [verdict for verdict in verdicts if verdict.insertion]
    files = {
        name: FileState(
            file.before.meta() if file.before else None,
            None if file.after is None else state.sha256(file.after),
        )
        for name, file in ours.items()
    }
    saved = {state.original_path(target, file.before.sha256) for file in ours.values() if file.before}
    bookkeeping = [_relative(target, path) for path in [*saved, state.state_file(target)]]
    return State(
        tool=__version__,
        vllm=str(target.version),
        hunks={verdict.hunk.id: verdict.digest or "" for verdict in placed},
        unreviewed=[verdict.hunk.id for verdict in placed if verdict.state == "needs-review"],
        asked=asked,
        files=files,
        rows={name: rows.get(name) for name, file in ours.items() if file.after is not None}
        | dict.fromkeys(bookkeeping),
    )


def _wanted(target: Target, old: State | None, new: State, ours: dict[str, _Ours]) -> dict[str, Image | None]:
    """Name every file of the patched tree that is ours or changed by us, as it must be; None: not there."""
    base = image.read(target.dist_info / "RECORD")
    assert base is not None, target.dist_info
    content = {_relative(target, state.state_file(target)): new.encode()}
    for name, file in ours.items():
        if file.before:
            content[_relative(target, state.original_path(target, file.before.sha256))] = file.before.data
        if file.after is not None:
            content[name] = file.after
    wanted: dict[str, Image | None] = {
        name: _written(target, name, data, (ours[name].before if name in ours else None) or base)
        for name, data in content.items()
    }
    for name, file in ours.items():  # bytecode of the original that someone put back would run instead of ours
        now = image.read(target.site / name)
        if file.before and file.after is None and now and now.data == file.before.data:
            wanted[name] = None
    for name, entry in (old.files if old else {}).items():  # what an older patch changed and this one does not
        if name not in ours:
            wanted[name] = state.original(target, name, entry) if entry.before else None
    wanted |= {
        _relative(target, path): None for path in state.own_files(target) if _relative(target, path) not in content
    }
    edits = (dict(old.rows) if old else {}) | {name: record.row(name, content[name]) for name in new.rows}
    return wanted | _record(target, edits)


def _written(target: Target, name: str, data: bytes, base: Image) -> Image:
    """Return the image of a file with new content, or the present one where the content is there already."""
    now = image.read(target.site / name)
    if now and now.data == data and now.link is None:
        return now
    # A cached file is trusted while its source has the second and the size it was compiled
    # from (python/cpython#121376), so the time moves on even within one second.
    later = [other.mtime_ns + 1_000_000_000 for other in (now, base) if other]
    return Image(data, base.mode, max([time.time_ns(), *later]), base.uid, base.gid)


def _record(target: Target, rows: dict[str, str | None]) -> dict[str, Image | None]:
    path = target.dist_info / "RECORD"
    now = image.read(path)
    assert now is not None, path
    data = record.edit(now.data, rows)
    return {_relative(target, path): now if data == now.data else dataclasses.replace(now, data=data, link=None)}


def _changes(target: Target, wanted: dict[str, Image | None], order: tuple[str, ...]) -> list[Change]:
    """Compare the wanted files with those on disk; every changed source loses its other bytecode."""
    changes = [Change(name, image.read(target.site / name), then) for name, then in wanted.items()]
    changes = [change for change in changes if change.before != change.after]
    stale = {_relative(target, path) for source in _sources(target, changes) for path in bytecode.beside(source)}
    changes += [Change(name, image.read(target.site / name), None) for name in sorted(stale - wanted.keys())]
    return sorted(changes, key=lambda change: (order.index(_kind(target, change)), change.path))


def _sources(target: Target, changes: list[Change]) -> list[Path]:
    return [target.site / change.path for change in changes if change.path.endswith(".py")]


def _caches(target: Target, changes: list[Change]) -> list[Path]:
    return [path for source in _sources(target, changes) for path in bytecode.elsewhere(source)]


def _kind(target: Target, change: Change) -> str:
    if change.path.startswith(f"{target.dist_info.name}/"):
        return "record" if change.path.endswith("/RECORD") else "state"
    if change.path.endswith(".pyc"):
        return "bytecode"
    if change.path.startswith(f"{PAYLOAD}/"):
        return "gone" if change.after is None else "payload"
    return "target"


def _relative(target: Target, path: Path) -> str:
    return path.relative_to(target.site).as_posix()
