"""Why an apply is refused: the hunk that does not fit, where, and what explains it."""

from __future__ import annotations

from radiance_patch import registry, rewrite
from radiance_patch.errors import DriftError, Puzzle
from radiance_patch.hunk import Hunk
from radiance_patch.image import Image
from radiance_patch.rewrite import Verdict
from radiance_patch.target import Target


def of(
    target: Target, hunks: list[Hunk], verdicts: list[Verdict], pristine: dict[str, Image], *, accept: bool
) -> DriftError | None:
    """Say why these verdicts forbid an apply, if they do. pristine: vLLM's own files, by path relative to the site."""
    refused = rewrite.REFUSED - ({"needs-review"} if accept else set())
    bad = [verdict for verdict in verdicts if verdict.state in refused]
    if not bad:
        return None
    near = registry.nearest(target.public, registry.supported(hunks))
    first = next((verdict for verdict in bad if verdict.state != "needs-review"), bad[0])
    others = f" ({len(bad)} of {len(verdicts)} hunks do not fit; --json lists them)" if len(bad) > 1 else ""
    path = target.package / first.hunk.file
    reviewable = first.state == "needs-review"
    known = any(hunk.variant_for(target.public) for hunk in hunks)
    return DriftError(
        f"Hunk {first.hunk.id} does not fit this vLLM ({first.state})."
        if known
        else f"vLLM {target.version} is not a release this radiance-patch knows; "
        f"the nearest supported: {', '.join(map(str, near))}.",
        where=f"{path}:{first.line}" if first.line else path,
        why=f"{first.hunk.id}: {first.detail}{others}",
        next_step="radiance-patch apply --accept-unreviewed --diff   (then read the diff)"
        if reviewable
        else f"pip install --force-reinstall --no-deps {target.distribution}=={near[0]}",
        diff=first.diff,
        puzzle=_puzzle(target, first, pristine),
    )


def _puzzle(target: Target, verdict: Verdict, pristine: dict[str, Image]) -> Puzzle | None:
    """Say what to compare a function with that has changed: the nearest release it was proved on."""
    if not verdict.changed or verdict.insertion is None:
        return None
    file = verdict.hunk.file
    near = registry.nearest(target.public, sorted(verdict.hunk.releases), 1)[0]
    scope = verdict.insertion[1].anchor.scope
    found = pristine[f"vllm/{file}"].data
    return Puzzle(target.package / file, f"vllm/{file}", found, (target.distribution, near), scope)
