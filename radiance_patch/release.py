"""A vLLM release that need not be installed: its files, its version, and where they come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from radiance_patch import target
from radiance_patch.archive import Files, Folder, WheelFile
from radiance_patch.errors import FetchError, TargetError

VERSION_FILE = "vllm/_version.py"


@dataclass(frozen=True)
class Release:
    """A release. origin: the wheel's or folder's name. size: of the whole wheel in bytes, where it is known."""

    distribution: str
    version: Version
    origin: str
    files: Files
    size: int | None = None

    def __str__(self) -> str:
        """Name it as people do."""
        return f"{self.distribution} {self.version}"

    @property
    def public(self) -> Version:
        """The version without its local part."""
        return Version(self.version.public)

    def source(self, file: str) -> bytes | None:
        """Read a file of the vllm package."""
        return self.files.read(f"vllm/{file}")


def from_wheel(path: Path) -> Release:
    """Open a wheel on disk. Raises FetchError when it is none of vLLM."""
    try:
        distribution, version, _, _ = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise FetchError("This is no wheel by its name.", where=path, why=str(error), next_step="ls *.whl") from None
    release = Release(str(distribution), version, path.name, WheelFile(path))
    if VERSION_FILE not in release.files.names():
        raise FetchError(
            "This wheel holds no vLLM.", where=path, why=f"{VERSION_FILE} is not in it", next_step="ls vllm*.whl"
        )
    return release


def from_folder(path: Path, version: Version | None) -> Release:
    """Open a folder that holds `vllm/`; version: for a checkout, whose version file is only written by a build."""
    if not (path / "vllm" / "__init__.py").is_file():
        raise FetchError(
            "This folder holds no vLLM.",
            where=path,
            why="vllm/__init__.py is not in it",
            next_step="radiance-patch check VERSION --source FOLDER_ABOVE_vllm",
        )
    try:
        known = version or target.read_version(path / "vllm")
    except TargetError as error:
        raise FetchError(
            "This folder does not say which version it is.",
            where=error.where,
            why=error.why,
            next_step=f"radiance-patch check VERSION --source {path}",
        ) from error
    return Release("vllm", known, str(path), Folder(path))
