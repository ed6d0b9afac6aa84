"""Looks at everything a patched server depends on, without starting it."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

from packaging.version import InvalidVersion, Version

from radiance_patch import __version__, registry, status, target
from radiance_patch.errors import BrokenInstallError, Exit, PatchError
from radiance_patch.target import Target


@dataclass(frozen=True)
class Finding:
    """One thing looked at. exit: 0, or the code it would fail with."""

    topic: str
    text: str
    exit: Exit = Exit.OK


def verdict(findings: list[Finding]) -> Exit:
    """Return the exit code of the worst finding; that nothing is applied yet is the least of all."""
    codes = [finding.exit for finding in findings]
    return max((code for code in codes if code is not Exit.NOT_APPLIED), default=Exit.OK) or max(codes)


def examine(place: str | None) -> list[Finding]:
    """Look at the tool, the target and the settings; nothing is imported from vLLM and nothing is written."""
    findings = [Finding("radiance-patch", f"{__version__}, Python {platform.python_version()}")]
    try:
        found = target.find(place)
        findings += _installation(found)
        result = status.inspect(found, registry.hunks())
        findings.append(Finding("patch", " ".join([result.summary, *result.problems]), result.exit))
    except PatchError as error:
        findings.append(_failure("vllm", error))
    return [*findings, *_settings()]


def _failure(topic: str, error: PatchError) -> Finding:
    topic = "radiance-patch" if isinstance(error, BrokenInstallError) else topic
    parts = [error.what, error.where or "", error.why or "", f"next: {error.next_step}"]
    return Finding(topic, " ".join(filter(None, parts)), error.exit)


def _installation(found: Target) -> Iterator[Finding]:
    yield Finding("vllm", f"{found.distribution} {found.version} in {found.site}, installed by {found.installer}")
    path = found.dist_info / "METADATA"
    metadata = HeaderParser().parsestr(path.read_text("utf-8", "replace") if path.is_file() else "")
    if _parsed(metadata["Version"]) != found.version:
        yield Finding(
            "metadata",
            f"{found.dist_info.name} says {metadata['Version'] or 'no version'}, the code says {found.version}",
            Exit.INCONSISTENT,
        )
    links = sum(1 for hunk in registry.hunks() if _links(found.package / hunk.file) > 1)
    if links:
        yield Finding(
            "links", "files are hard links into a package cache; apply replaces them, the cache keeps its own"
        )
    prefix = os.environ.get("PYTHONPYCACHEPREFIX")
    if prefix:
        yield Finding("bytecode", f"is kept under {prefix}, which must be set for apply and revert too")
    if os.environ.get("RADIANCE_DYNAMIC_WIDTH") == "1":
        yield Finding(
            "width",
            "where decode runs in FULL CUDA graphs (vLLM's default on CUDA) no width but K has a graph, "
            "and the cap waits; the engine's log says so at start",
        )


def _parsed(version: str | None) -> Version | None:
    try:
        return Version(version or "")
    except InvalidVersion:
        return None


def _links(path: Path) -> int:
    try:
        return path.lstat().st_nlink
    except OSError:
        return 0


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
