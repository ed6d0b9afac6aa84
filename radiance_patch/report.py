"""Renders results: aligned text for people, one JSON object for programs (schema.json beside this file)."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from typing import Any

import click

from radiance_patch.check import Checked, Row
from radiance_patch.errors import Exit, PatchError
from radiance_patch.plan import Change, Plan
from radiance_patch.status import HunkStatus, Status
from radiance_patch.target import Target

SCHEMA = 1
STATES = {
    "applied": "green",
    "pristine": "cyan",
    "upstreamed": "cyan",
    "outdated": "yellow",
    "needs-review": "yellow",
    "drifted": "red",
    "moved": "red",
    "missing-file": "red",
    "tampered": "red",
}


def envelope(command: str, code: Exit, summary: str, target: Target | None = None, **more: Any) -> dict[str, Any]:
    """Return the JSON object every command prints: its head, and what the command adds."""
    head = {"schema": SCHEMA, "command": command, "exit": int(code), "summary": summary}
    return {**head, "target": describe(target) if target else None, **more}


def describe(target: Target) -> dict[str, str]:
    """Describe a target for JSON."""
    return {
        "site": str(target.site),
        "distribution": target.distribution,
        "version": str(target.version),
        "installer": target.installer,
    }


def headline(target: Target) -> str:
    """Name a target in one line."""
    return f"{target.distribution} {target.version} in {target.site}"


def hunk_rows(plan: Plan, *, done: bool) -> list[HunkStatus]:
    """Turn a plan's verdicts into hunk states; done: the plan was carried out."""
    return [
        HunkStatus(
            verdict.hunk.id,
            verdict.hunk.file,
            "applied" if done and verdict.insertion else verdict.state,
            "accepted unreviewed" if done and verdict.state == "needs-review" else verdict.detail,
            verdict.line,
        )
        for verdict in plan.verdicts
    ]


def hunk_json(rows: Iterable[HunkStatus]) -> list[dict[str, Any]]:
    """Turn hunk states into JSON."""
    return [row.__dict__ for row in rows]


def hunk_table(rows: Iterable[HunkStatus]) -> str:
    """Align hunk states: state, id, place, reason."""
    rows = list(rows)
    wide = max((len(row.id) for row in rows), default=0)
    return "\n".join(_hunk_line(row, wide) for row in rows)


def _hunk_line(row: HunkStatus | Row, wide: int) -> str:
    place = f"{row.file}:{row.line}" if row.line else row.file
    state = click.style(f"{row.state:<12}", fg=STATES.get(row.state, "green"))  # check calls it `same`
    return f"  {state}  {row.id:<{wide}}  {place}" + (f"  {row.detail}" if row.detail else "")


def status_text(target: Target, status: Status) -> str:
    """Render a status for people."""
    colour = "green" if status.exit is Exit.OK else "red" if status.exit is Exit.INCONSISTENT else "yellow"
    lines = [headline(target), click.style(status.summary, fg=colour, bold=True), hunk_table(status.hunks)]
    lines += [f"  {problem}" for problem in status.problems]
    if status.next_step:
        lines.append(f"next: {status.next_step}")
    return "\n".join(lines)


def checked_text(checked: Checked) -> str:
    """Render the verdict on a release for people: each hunk, and under it what explains its state."""
    colour = "green" if checked.exit is Exit.OK else "yellow"
    lines = [click.style(checked.summary, fg=colour, bold=True)]
    wide = max((len(row.id) for row in checked.rows), default=0)
    seen: set[str] = set()  # two hunks in one function share its diff
    for row in checked.rows:
        lines.append(_hunk_line(row, wide))
        lines += [f"      {line}" for line in diff_lines(row.diff)] if row.diff not in seen else []
        seen.add(row.diff)
    size = f" of {checked.release.size / 1e6:.0f} MB" if checked.release.size else ""
    lines.append(f"  read from {checked.release.origin}, {checked.fetched / 1e6:.2f} MB{size} fetched")
    return "\n".join([*lines, f"next: {checked.next_step}"])


def checked_json(checked: Checked) -> dict[str, Any]:
    """Turn the verdict on a release into JSON."""
    return {
        "distribution": checked.release.distribution,
        "version": str(checked.release.version),
        "origin": checked.release.origin,
        "exit": int(checked.exit),
        "summary": checked.summary,
        "hunks": [row.__dict__ for row in checked.rows],
        "fetched": checked.fetched,
        "size": checked.release.size,
        "next": checked.next_step,
    }


def diff_lines(diff: str) -> list[str]:
    """Colour the lines of a diff."""
    colours = {"-": "red", "+": "green", "@": "cyan"}
    return [click.style(line, fg=colours.get(line[:1])) for line in diff.splitlines()]


def error_text(error: PatchError) -> str:
    """Render an expected failure: what, where, why, the next command."""
    lines = [click.style("error: ", fg="red", bold=True) + error.what]
    lines += [f"  where: {error.where}"] if error.where else []
    lines += [f"  why:   {error.why}"] if error.why else []
    lines += [f"         {line}" for line in diff_lines(error.diff)]
    return "\n".join([*lines, f"  next:  {error.next_step}"])


def error_json(command: str, error: PatchError, code: Exit | None = None) -> dict[str, Any]:
    """Turn a failure into JSON. code: the exit code, where it is not the error's own."""
    detail = {"what": error.what, "where": error.where, "why": error.why, "next": error.next_step}
    detail |= {"diff": error.diff} if error.diff else {}
    return envelope(command, error.exit if code is None else code, error.what, error=detail)


def diff_text(changes: Iterable[Change]) -> str:
    """Return the unified diff of the changes to vLLM's own sources, as `git apply` takes it."""
    parts: list[str] = []
    for change in changes:
        if not change.path.endswith(".py") or change.before is None or change.after is None:
            continue
        before, after = (_lines(image.data.decode("utf-8")) for image in (change.before, change.after))
        diff = difflib.unified_diff(before, after, f"a/{change.path}", f"b/{change.path}")
        parts += (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in diff)
    return "".join(parts)


def _lines(text: str) -> list[str]:
    """Split at newlines alone; str.splitlines would also split at characters that stand inside a line."""
    return [line for line in re.split(r"(?<=\n)", text) if line]


def dump(body: dict[str, Any]) -> str:
    """Encode the JSON object."""
    return json.dumps(body, indent=2, sort_keys=False)
