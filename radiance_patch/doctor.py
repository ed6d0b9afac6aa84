"""Looks at everything a patched server depends on, without starting it."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator

from packaging.version import Version

from radiance_patch import __version__, caches, features, foreign, installation, registry, status, target
from radiance_patch.errors import BrokenInstallError, Exit, PatchError
from radiance_patch.finding import Finding
from radiance_patch.hunk import Hunk


def verdict(findings: list[Finding]) -> Exit:
    """Return the exit code of the worst finding; that nothing is applied yet is the least of all."""
    codes = [finding.exit for finding in findings]
    return max((code for code in codes if code is not Exit.NOT_APPLIED), default=Exit.OK) or max(codes)


def examine(place: str | None) -> list[Finding]:
    """Look at the tool, the target and the settings; nothing is imported from vLLM and nothing is written."""
    findings = [Finding("radiance-patch", f"{__version__}, Python {platform.python_version()}")]
    try:
        found, hunks = target.find(place), registry.hunks()
        findings += installation.findings(found, registry.at(hunks, found.public))
        findings += foreign.findings(found)
        findings += caches.findings(found)
        result = status.inspect(found, hunks)
        findings.append(Finding("patch", " ".join([result.summary, *result.problems]), result.exit))
        findings += _features(found, hunks, result)
    except PatchError as error:
        findings.append(_failure("vllm", error))
    return [*findings, *_settings()]


def _failure(topic: str, error: PatchError) -> Finding:
    topic = "radiance-patch" if isinstance(error, BrokenInstallError) else topic
    parts = [error.what, error.where or "", error.why or "", f"next: {error.next_step}"]
    return Finding(topic, " ".join(filter(None, parts)), error.exit)


def _features(found: target.Target, hunks: list[Hunk], result: status.Status) -> Iterator[Finding]:
    """Say which runners the features reach on this vLLM, and what keeps them from others."""
    mine = registry.at(hunks, found.public)
    placed = {hunk.id for hunk in result.hunks if hunk.state == "applied"}
    yield Finding("features", f"live: {features.text(mine, placed)}" if placed else "none is live: the patch is not in")
    if "v2" not in features.FEATURES[0].runners(mine, {hunk.id for hunk in mine}):
        first = min(Version(hunk.since) for hunk in hunks if hunk.since)
        yield Finding("features", f"on the V2 runner nothing is live before vLLM {first}")
    yield Finding(
        "features",
        "stock whatever is set, and the engine's log says so at start: "
        "tensor, pipeline, data and expert parallel, LoRA, probabilistic drafts, methods other than MTP and Eagle",
    )


def _settings() -> Iterator[Finding]:
    try:
        registry.payload()
        settings = registry.module("settings")
    except BrokenInstallError as error:
        yield _failure("settings", error)
        return
    for setting in settings.SETTINGS:
        try:
            setting.read(os.environ)
        except settings.SettingsError as error:
            yield Finding("settings", str(error), Exit.FAILED)
            continue
        is_set = setting.is_set(os.environ)
        source, value = ("set", os.environ[setting.name].strip()) if is_set else ("default", setting.default)
        yield Finding("settings", f"{setting.name}={value} ({source}): {setting.meaning}")
    for line in settings.complaints(os.environ):
        yield Finding("settings", line)
