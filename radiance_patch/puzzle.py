"""Finds the diff that explains a refusal, by the release or the patched file that there should be."""

from __future__ import annotations

from radiance_patch import explain, locate
from radiance_patch.errors import PatchError, Puzzle
from radiance_patch.locate import LocateError
from radiance_patch.publisher import Publisher

# A refusal must not wait for an index that does not answer. In seconds.
PATIENCE = 3.0


def solve(error: PatchError) -> None:
    """Add the diff, and the line at which it starts, to a refusal; or to its reason why there is none."""
    if error.puzzle is None or error.diff:
        return
    try:
        error.diff = _difference(error.puzzle)
    except (PatchError, LocateError) as reason:
        error.why = f"{error.why} (how is not shown: {reason})"
    line = explain.first_line(error.diff)
    error.where = f"{error.puzzle.path}:{line}" if line else error.where


def _difference(puzzle: Puzzle) -> str:
    if puzzle.published is None:
        wanted = puzzle.rebuild() if puzzle.rebuild else None
        return explain.file(wanted, puzzle.found, ("as applied", str(puzzle.path))) if wanted is not None else ""
    with Publisher(PATIENCE) as publisher:
        release = publisher.reference(*puzzle.published)
        published = release.files.read(puzzle.name) or b""
    names = (f"{release}/{puzzle.name.removeprefix('vllm/')}", str(puzzle.path))
    if puzzle.scope is None:
        return explain.file(published, puzzle.found, names)
    return explain.function(locate.parse(published), locate.parse(puzzle.found), puzzle.scope, names)
