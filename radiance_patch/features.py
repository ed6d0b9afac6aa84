"""What the hunks add up to: the features, and the model runners each is live on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from radiance_patch.hunk import Hunk

RUNNERS = ("v1", "v2")


@dataclass(frozen=True)
class Feature:
    """One feature. modules: by runner, the payload modules whose hunks it needs, all of them."""

    name: str
    variable: str
    modules: Mapping[str, frozenset[str]]

    def runners(self, hunks: Sequence[Hunk], placed: Collection[str]) -> list[str]:
        """Return the runners it is live on, where of `hunks`, those of a release, the ids in `placed` are applied."""
        live = []
        for runner in RUNNERS:
            needed = [hunk.id for hunk in hunks if self.modules[runner] & set(hunk.calls)]
            if needed and all(name in placed for name in needed):
                live.append(runner)
        return live


_V2 = frozenset({"graphs", "speculator", "steps"})
FEATURES = (
    Feature("draft depth", "RADIANCE_DYNAMIC_DRAFT", {"v1": frozenset({"draft"}), "v2": _V2}),
    Feature("verbatim tails", "RADIANCE_DYNAMIC_DRAFT", {"v1": frozenset({"draft"}), "v2": _V2}),
    Feature("short draft head", "RADIANCE_DRAFT_VOCAB", {"v1": frozenset(), "v2": _V2 | {"head"}}),
    Feature("fused draft layers", "RADIANCE_DRAFT_FUSED", {"v1": frozenset(), "v2": _V2 | {"fused"}}),
    Feature("verify width", "RADIANCE_DYNAMIC_WIDTH", {"v1": frozenset({"width"}), "v2": _V2}),
)


def rows(hunks: Sequence[Hunk], placed: Collection[str]) -> list[dict[str, object]]:
    """Return a row a feature for --json: name, variable, runners."""
    return [
        {"name": feature.name, "variable": feature.variable, "runners": feature.runners(hunks, placed)}
        for feature in FEATURES
    ]


def text(hunks: Sequence[Hunk], placed: Collection[str]) -> str:
    """Say it in one line for people."""
    parts = []
    for feature in FEATURES:
        live = feature.runners(hunks, placed)
        parts.append(
            f"{feature.name} on {' and '.join(map(str.upper, live))}" if live else f"{feature.name} on neither"
        )
    return "; ".join(parts)
