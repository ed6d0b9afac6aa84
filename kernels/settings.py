"""Every RADIANCE_* variable: its type, default, range and meaning, read once and checked whole."""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

PREFIX = "RADIANCE_"

# The command-line tool's own variables; vLLM has no use for them.
TOOL_PREFIX = "RADIANCE_PATCH_"

NO_CAP = 1 << 30


class SettingsError(ValueError):
    """A malformed or out-of-range value; the message is one line: the variable, the value, the form expected."""


@dataclass(frozen=True)
class Setting:
    """One variable. parse: raises ValueError for a value without the form."""

    name: str
    default: str
    form: str
    meaning: str
    parse: Callable[[str], Any]

    def is_set(self, environ: Mapping[str, str]) -> bool:
        """Whether the environment decides; an empty variable counts as not set where empty has no meaning."""
        text = environ.get(self.name)
        return text is not None and (text.strip() != "" or self.parse is _schedule)

    def read(self, environ: Mapping[str, str]) -> Any:
        """Return the value in force."""
        text = environ[self.name] if self.is_set(environ) else self.default
        try:
            return self.parse(text.strip())
        except ValueError:
            raise SettingsError(f"radiance-patch: {self.name}={text!r}: expected {self.form}") from None


@dataclass(frozen=True)
class Settings:
    """The values in force.

    dynamic_width: cap verify rows by what was accepted. alpha: weight of the newest
    observation, in (0, 1]. margin, floor: drafts. min_batch: running requests.
    dynamic_draft, tau, schedule: see SETTINGS; schedule is (batch size, depth) pairs by size.
    draft_vocabulary: tokens of the draft head, 0 for all. fused_draft: fused kernels in the draft model.
    log_seconds: between two log lines of the draft controller's counters, 0 for none.
    given: the variables that the environment sets, rather than a default.
    """

    dynamic_width: bool
    alpha: float
    margin: int
    floor: int
    min_batch: int
    dynamic_draft: bool
    tau: float
    schedule: tuple[tuple[int, int], ...]
    draft_vocabulary: int
    fused_draft: bool
    log_seconds: float
    given: frozenset[str] = field(default=frozenset(), compare=False)

    def depth_cap(self, batch: int) -> int:
        """Return the most draft forwards at a batch size: of the largest size not above it, else of the smallest."""
        depth = self.schedule[0][1] if self.schedule else NO_CAP
        for size, cap in self.schedule:
            if batch >= size:
                depth = cap
        return depth


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError
    return text == "1"


def _number(low: float, high: float, *, low_open: bool = False) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = float(text)
        if not text.isascii() or "_" in text or not low <= value <= high or (low_open and value == low):
            raise ValueError
        return value

    return parse


def _count(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise ValueError
        return int(text)

    return parse


def _vocabulary(text: str) -> int:
    return 0 if text == "0" else _count(1024, 1 << 20)(text)


def _schedule(text: str) -> tuple[tuple[int, int], ...]:
    pairs: dict[int, int] = {}
    parse = _count(1, 4096)
    for item in text.split(",") if text else []:
        size, colon, depth = item.partition(":")
        if not colon or parse(size.strip()) in pairs:
            raise ValueError
        pairs[parse(size.strip())] = parse(depth.strip())
    return tuple(sorted(pairs.items()))


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "RADIANCE_DYNAMIC_WIDTH", "0", "0 or 1",
        "1: verify fewer drafts of a request that accepts few", _switch,
    ),
    Setting(
        "RADIANCE_DYNW_ALPHA", "0.35", "a number above 0, at most 1",
        "weight of the newest accepted count in the moving average", _number(0, 1, low_open=True),
    ),
    Setting(
        "RADIANCE_DYNW_MARGIN", "2", "a whole number from 0 to 64",
        "drafts verified beyond the average", _count(0, 64),
    ),
    Setting(
        "RADIANCE_DYNW_MIN", "2", "a whole number from 1 to 64",
        "drafts verified at the least (0 would leave nothing to learn from)", _count(1, 64),
    ),
    Setting(
        "RADIANCE_DYNW_MIN_BATCH", "5", "a whole number from 1 to 65536",
        "running requests from which on the cap is applied", _count(1, 65536),
    ),
    Setting(
        "RADIANCE_DYNAMIC_DRAFT", "1", "0 or 1",
        "1: draft as deep as it pays, on the V1 model runner only when set; 0: as stock", _switch,
    ),
    Setting(
        "RADIANCE_DRAFT_TAU", "0.28", "a number from 0 to 1",
        "V1 runner: go on drafting while the product of top-1 confidences is at least this", _number(0, 1),
    ),
    Setting(
        "RADIANCE_DRAFT_SCHEDULE", "1:8,2:7,4:6,8:5,16:4", 'pairs "batch size:depth" as in 1:8,4:6 (empty: no cap)',
        "most draft forwards from a batch size on; on the V2 runner only when set", _schedule,
    ),
    Setting(
        "RADIANCE_DRAFT_VOCAB", "32768", "0 or a whole number from 1024 to 1048576",
        "V2 runner: tokens the drafter chooses from, learnt from the text, of a vocabulary at least twice as large; "
        "0: from all", _vocabulary,
    ),
    Setting(
        "RADIANCE_DRAFT_FUSED", "1", "0 or 1",
        "V2 runner: 1: fused kernels for the layers of a draft model that is not compiled; 0: as stock", _switch,
    ),
    Setting(
        "RADIANCE_DRAFT_LOG_SECONDS", "60", "a number from 0 to 86400",
        "seconds between two log lines of the draft controller's counters; 0: none", _number(0, 86400),
    ),
)  # fmt: skip


def read(environ: Mapping[str, str]) -> Settings:
    """Read all settings. Raises SettingsError for the first value that does not have its form."""
    given = frozenset(setting.name for setting in SETTINGS if setting.is_set(environ))
    return Settings(*(*(setting.read(environ) for setting in SETTINGS), given))


@functools.cache
def current() -> Settings:
    """Return this process's settings; read once, since vLLM's processes inherit one environment."""
    return read(os.environ)


def complaints(environ: Mapping[str, str]) -> list[str]:
    """Return a line for every RADIANCE_* name nobody knows, with the nearest known one."""
    known = {setting.name: setting for setting in SETTINGS}
    lines = []
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name.startswith(TOOL_PREFIX):
            continue
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.0)[0]
            lines.append(f"radiance-patch: {name} is no variable of radiance-patch; did you mean {near}?")
    return lines
