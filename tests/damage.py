"""Trees damaged on purpose, one for each kind of failure, and the verdict each must get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults import sandbox
from tests.faults.sandbox import SMALL_FILE, Result, replace, rewrite, seal

LOOP = "        for req_id in scheduler_output.num_scheduled_tokens:\n"


@dataclass(frozen=True)
class Damage:
    """One kind of failure.

    spoil: makes it, on a trimmed tree of the newest release. command: what is asked then.
    exit, state: what must be answered, state of the hunk in the damaged file. where: the end
    of the place that must be named, less the line.
    """

    name: str
    spoil: Callable[[Path], object]
    exit: int
    state: str
    command: str = "apply"
    where: str = SMALL_FILE

    def verdict(self, site: Path) -> Result:
        """Damage a tree, and ask."""
        self.spoil(site)
        return sandbox.tool(self.command, "--json", site=site)


def _gone(site: Path) -> None:
    (site / SMALL_FILE).unlink()
    seal(site, SMALL_FILE)


def _edit(site: Path) -> None:
    path = site / SMALL_FILE
    data = path.read_bytes().replace(b"req_id in scheduler", b"req_id in  scheduler")
    path.unlink()  # it may be a link into the cache
    path.write_bytes(data)


def _applied(then: Callable[[Path], object]) -> Callable[[Path], object]:
    def spoil(site: Path) -> None:
        sandbox.ok("apply", site=site)
        then(site)

    return spoil


def _cut_off(site: Path) -> None:
    sandbox.journal(site).mkdir()


DAMAGES = [
    Damage("the version is unknown", lambda site: sandbox.set_version(site, "0.99.0"), 4, "needs-review"),
    Damage(
        "a function changed",
        lambda site: rewrite(site, SMALL_FILE, replace(LOOP, f"        self.count = 1\n{LOOP}")),
        4,
        "needs-review",
    ),
    Damage(
        "a statement changed",
        lambda site: rewrite(site, SMALL_FILE, replace("for req_id in scheduler", "for name in scheduler")),
        4,
        "drifted",
    ),
    Damage(
        "a statement moved",
        lambda site: rewrite(
            site,
            SMALL_FILE,
            replace(LOOP, f"        self._each(scheduler_output)\n\n    def _each(self, output):\n{LOOP}"),
        ),
        4,
        "moved",
    ),
    Damage("a file is not in the release", _gone, 4, "missing-file"),
    Damage("a file is lost", lambda site: (site / SMALL_FILE).unlink(), 5, "missing-file", "status"),
    Damage("another patcher was here", _edit, 5, "tampered", "status"),
    Damage("edited after apply", _applied(_edit), 5, "tampered", "status"),
    Damage("apply was cut off", _cut_off, 5, "tampered", "status", "radiance-patch.journal"),
]
