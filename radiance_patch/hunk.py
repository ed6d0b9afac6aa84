"""The vocabulary of a rewrite: Hunk, Variant, Anchor, Edit."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from packaging.version import Version


class Where(enum.Enum):
    """On which side of the anchored statement the text goes."""

    BEFORE = "before"
    AFTER = "after"
    BODY = "first in its body"


@dataclass(frozen=True)
class Anchor:
    """One statement inside one function.

    scope: the function's qualified name, as in `Scheduler.schedule`.
    statement: the statement's source; layout and comments do not matter. A compound
    statement is written with `...` as its body, which matches any body and any `else`.
    """

    scope: str
    statement: str


@dataclass(frozen=True)
class Edit:
    """Lines to insert at an anchor, without indentation; they call the payload and hold no logic."""

    where: Where
    text: str


@dataclass(frozen=True)
class Variant:
    """One form of a hunk, for a closed range of releases.

    fingerprints: for every release it was proved on, the fingerprint of the enclosing
    function (see `locate.fingerprint`). Releases that share one share the entry's value.
    file: the target in these releases, None where it is the hunk's.
    """

    anchor: Anchor
    edit: Edit
    fingerprints: Mapping[str, str]
    file: str | None = None

    @property
    def releases(self) -> set[Version]:
        """Every release this form was proved on."""
        return {*map(Version, self.fingerprints)}

    @property
    def first(self) -> Version:
        """The oldest release this form was proved on."""
        return min(self.releases)

    @property
    def last(self) -> Version:
        """The newest release this form was proved on."""
        return max(self.releases)

    def covers(self, version: Version) -> bool:
        """Whether a public version lies in the closed range of proved releases."""
        return self.first <= version <= self.last


@dataclass(frozen=True)
class Hunk:
    """One rewrite of one vLLM file.

    module: the name of the hunk's module; its last part is the hunk's id.
    file: the target, relative to the vllm package, where no variant has another.
    why: what it is for. upstream: the upstream issue, or "none: reason".
    remove_when: the event after which the hunk can go.
    calls: payload modules the text calls; each becomes an import in the target.
    upstreamed_since: the first release that does this by itself, if there is one.
    since, until: the first and the last minor release that have what is rewritten, as in
    "0.29", None for no end; other releases have nothing to patch here.
    """

    module: str
    file: str
    why: str
    upstream: str
    remove_when: str
    calls: tuple[str, ...]
    variants: tuple[Variant, ...]
    upstreamed_since: str | None = None
    since: str | None = None
    until: str | None = None
    id: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", self.module.rpartition(".")[2])

    @property
    def releases(self) -> set[Version]:
        """Every release the hunk was proved on."""
        return {release for variant in self.variants for release in variant.releases}

    def concerns(self, version: Version) -> bool:
        """Whether a public version has what this hunk rewrites; a patch release has what its minor release has."""
        minor = version.release[:2]
        return (self.since is None or minor >= Version(self.since).release) and (
            self.until is None or minor <= Version(self.until).release
        )

    def variant_for(self, version: Version) -> Variant | None:
        """Return the form for a public version, or None outside every proved range."""
        return next((variant for variant in self.variants if variant.covers(version)), None)
