"""Writes the generated parts of the README: ``python -m tests.readme``."""

from __future__ import annotations

import re
from pathlib import Path

from radiance_patch.kernels.settings import SETTINGS

from radiance_patch.errors import MEANING
from tests import matrix

README = Path(__file__).parents[1] / "README.md"


def table(*rows: tuple[str, ...]) -> str:
    """Return a Markdown table; the first row is its head."""
    head, *body = rows
    lines = [head, tuple("---" for _ in head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def parts() -> dict[str, str]:
    """Return every generated part by its name."""
    exits = [(str(int(code)), meaning) for code, meaning in MEANING.items()]
    settings = [(f"`{s.name}`", f"`{s.default}`", s.form, s.meaning) for s in SETTINGS]
    return {
        "exit codes": table(("exit", "meaning"), *exits),
        "settings": table(("variable", "default", "form", "meaning"), *settings),
        "releases": table(*matrix.table()),
    }


def rendered(text: str) -> str:
    """Return the README's text with every generated part brought up to date."""
    for name, part in parts().items():
        pattern = rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)"
        text, count = re.subn(pattern, lambda found, part=part: f"{found[1]}{part}\n{found[2]}", text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"README.md has {count} places for the part {name!r}")
    return text


if __name__ == "__main__":
    README.write_text(rendered(README.read_text()))
