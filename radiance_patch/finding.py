"""One thing that `doctor` looked at."""

from __future__ import annotations

from dataclasses import dataclass

from radiance_patch.errors import Exit


@dataclass(frozen=True)
class Finding:
    """One thing looked at. exit: 0, or the code it would fail with."""

    topic: str
    text: str
    exit: Exit = Exit.OK
