"""What pip is told about package indexes, read from pip itself, so that all its files and variables count."""

from __future__ import annotations

import ast
import functools
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass

from radiance_patch.errors import FetchError

# As `pip install` weighs them: a later one wins.
SECTIONS = ("global", "install", ":env:")
NEXT = "name an index as for pip (PIP_INDEX_URL), or give the wheel itself: radiance-patch check --wheel FILE"


@dataclass(frozen=True)
class PipConfig:
    """Where and how pip fetches.

    indexes: URLs of simple indexes, in order. find_links: URLs or paths. trusted: hosts
    (or host:port) whose certificate is not verified. cert, client_cert: paths. timeout: seconds.
    """

    indexes: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    trusted: frozenset[str] = frozenset()
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = None
    timeout: float = 15.0


def read() -> PipConfig:
    """Ask pip for its configuration. Raises FetchError when no pip runs or what it says has no form."""
    options = parse(_pip("config", "list"))
    no_index = options.get("no-index", "").lower() in ("1", "true", "yes", "on", "y", "t")
    extra = options.get("extra-index-url", "").split()
    return PipConfig(
        indexes=() if no_index else (options.get("index-url") or _default_index(), *extra),
        find_links=tuple(options.get("find-links", "").split()),
        trusted=frozenset(options.get("trusted-host", "").split()),
        cert=options.get("cert"),
        client_cert=options.get("client-cert"),
        proxy=options.get("proxy"),
        timeout=float(options.get("timeout") or options.get("default-timeout") or PipConfig.timeout),
    )


def parse(listing: str) -> dict[str, str]:
    """Turn what `pip config list` prints into options by name; of two sections the later of SECTIONS wins."""
    found: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in listing.splitlines():
        key, _, text = line.partition("=")
        section, _, name = key.partition(".")
        if section in found:
            found[section][name] = str(ast.literal_eval(text))
    return {name: value for section in SECTIONS for name, value in found[section].items()}


def _default_index() -> str:
    """Return the index pip uses where none is set; only its help text says which."""
    text = _pip("install", "--help")
    found = re.search(r"--index-url.*?\(default\s+(\S+?)\)", text, re.DOTALL)
    if not found:
        raise FetchError("No package index is configured.", why="pip names none in its help", next_step=NEXT)
    return found[1]


@functools.cache
def _command() -> tuple[str, ...]:
    """Return the pip of this environment, or else the first on the PATH (an environment made by uv has none)."""
    mine = (sys.executable, "-m", "pip")
    if subprocess.run([*mine, "--version"], capture_output=True, check=False).returncode == 0:  # noqa: S603
        return mine
    other = shutil.which("pip") or shutil.which("pip3")
    if other is None:
        raise FetchError("There is no pip whose configuration could be read.", where=sys.executable, next_step=NEXT)
    return (other,)


def _pip(*arguments: str) -> str:
    wide = {**os.environ, "COLUMNS": "1000"}  # or its help would break a long URL
    command = [*_command(), *arguments]
    answer = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, env=wide)  # noqa: S603
    if answer.returncode != 0:
        why = (answer.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise FetchError("pip cannot read its configuration.", why=why, next_step="pip config debug")
    return answer.stdout
