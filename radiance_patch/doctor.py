"""Looks at everything a patched server depends on, without starting it."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

from radiance_patch import __version__, registry, status, target
from radiance_patch.errors import Exit, PatchError
from radiance_patch.kernels import settings
from radiance_patch.target import Target


@dataclass(frozen=True)
class Finding:
    """One thing looked at. exit: 0, or the code it would fail with."""

    topic: str
    text: str
    exit: Exit = Exit.OK


def examine(place: str | None) -> list[Finding]:
    """Look at the tool, the target and the settings; nothing is imported from vLLM and nothing is written."""
    findings = [Finding("radiance-patch", f"{__version__}, Python {platform.python_version()}")]
    try:
        found = target.find(place)
        findings += _installation(found)
        result = status.inspect(found, registry.hunks())
        findings.append(Finding("patch", " ".join([result.summary, *result.problems]), result.exit))
    except PatchError as error:
        parts = [error.what, error.where or "", error.why or "", f"next: {error.next_step}"]
        findings.append(Finding("vllm", " ".join(filter(None, parts)), error.exit))
    return [*findings, *_settings()]


def _installation(found: Target) -> Iterator[Finding]:
    yield Finding("vllm", f"{found.distribution} {found.version} in {found.site}, installed by {found.installer}")
    metadata = HeaderParser().parsestr((found.dist_info / "METADATA").read_text("utf-8", "replace"))
    if metadata["Version"] != str(found.version):
        yield Finding(
            "metadata",
            f"{found.dist_info.name} says {metadata['Version']}, the code says {found.version}",
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


def _links(path: Path) -> int:
    try:
        return path.lstat().st_nlink
    except OSError:
        return 0


def _settings() -> Iterator[Finding]:
    for setting in settings.SETTINGS:
        try:
            setting.read(os.environ)
        except settings.SettingsError as error:
            yield Finding("settings", str(error), Exit.FAILED)
            continue
        source = "set" if os.environ.get(setting.name) else "default"
        value = os.environ.get(setting.name) or setting.default
        inert = "" if setting.live else " (nothing reads it in this version)"
        yield Finding("settings", f"{setting.name}={value} ({source}): {setting.meaning}{inert}")
    for line in settings.complaints(os.environ):
        yield Finding("settings", line)
