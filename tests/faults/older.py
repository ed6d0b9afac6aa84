"""An older radiance-patch: this one, with other hunks, another payload and another version."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from radiance_patch import locate
from radiance_patch.hunk import Anchor, Where
from tests.faults.sandbox import RELEASE, Result, environment, tool
from tests.real.releases import site_packages

ROOT = Path(__file__).parents[2]
EXTRA_FILE = "vllm/v1/core/sched/utils.py"
EXTRA_ANCHOR = Anchor("check_stop", "last_token_id = request.output_token_ids[-1]")
EXTRA_HUNK = '''"""A rewrite that the present radiance-patch no longer has, in a file that it does not touch."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file={file!r},
    why="it once was",
    upstream="none: a test",
    remove_when="now",
    calls=("former",),
    variants=(
        Variant(
            anchor={anchor!r},
            edit=Edit(Where.AFTER, "_radiance_former.look(request)"),
            fingerprints={{{version!r}: {fingerprint!r}}},
        ),
    ),
)
'''


def older_tool(folder: Path) -> Callable[..., Result]:
    """Install an older radiance-patch in `folder` and return the function that runs it, as `sandbox.tool` does.

    It lacks one hunk of the present one, has one more in another file, and one whose text differs; of the
    payload it has one module more, and one that differs.
    """
    package = folder / "radiance_patch"
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "radiance_patch", package, ignore=skip)
    shutil.copytree(ROOT / "hunks", package / "hunks", ignore=skip)
    shutil.copytree(ROOT / "kernels", package / "kernels", ignore=skip)
    _edit(package / "__init__.py", '__version__ = "', '__version__ = "0.0.')
    _edit(package / "hunks" / "async_scheduler_cap.py", "_radiance_width.cap_batch(", "_radiance_width.cap_all(")
    (package / "hunks" / "scheduler_observe.py").unlink()
    (package / "hunks" / "former_hunk.py").write_text(_extra_hunk())
    (package / "kernels" / "former.py").write_text('"""A payload module that is no more."""\n')
    width = package / "kernels" / "width.py"
    width.write_text(width.read_text() + "\n# as it once was\n")

    def run(*args: str, site: Path) -> Result:
        command = (sys.executable, "-c", "from radiance_patch.cli import main; main()")
        return tool(*args, site=site, command=command, env={"PYTHONPATH": str(folder)})

    _prove(folder)
    return run


def _prove(folder: Path) -> None:
    """Assert that it is the older one that runs."""
    code = "import radiance_patch, radiance_patch.hunks; print(radiance_patch.__file__, radiance_patch.hunks.__file__)"
    env = environment({"PYTHONPATH": str(folder)})
    found = subprocess.run([sys.executable, "-c", code], env=env, cwd="/", capture_output=True, text=True, check=True)
    assert found.stdout.count(str(folder)) == 2, found.stdout


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, path
    path.write_text(text.replace(old, new))


def _extra_hunk() -> str:
    source = locate.parse((site_packages(RELEASE) / EXTRA_FILE).read_bytes())
    function = locate.find(source, EXTRA_ANCHOR, Where.AFTER).function
    return EXTRA_HUNK.format(
        file=EXTRA_FILE.removeprefix("vllm/"),
        anchor=EXTRA_ANCHOR,
        version=RELEASE.version,
        fingerprint=locate.fingerprint(function),
    )
