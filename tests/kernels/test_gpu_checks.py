"""The checks that need a GPU say so without one, and can fail."""

import sys
from pathlib import Path

import pytest

from tests.bench import gpu_copies, gpu_sanitizer


@pytest.fixture
def sanitizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put a compute-sanitizer of the given lines before everything else, or leave none to be found."""

    def install(lines: str | None) -> None:
        monkeypatch.setattr(gpu_sanitizer, "SEARCHED", ())
        monkeypatch.delenv("CUDA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        if lines is not None:
            script = tmp_path / "compute-sanitizer"
            script.write_text(f"#!{sys.executable}\nimport os, sys\n{lines}\n")
            script.chmod(0o755)

    return install


def test_without_a_sanitizer_nothing_passes(sanitizer, capsys):
    sanitizer(None)
    assert gpu_sanitizer.main() == gpu_sanitizer.ABSENT != 0
    assert "compute-sanitizer is absent" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("print('every shape ran')", 0),
        ("print('every shape ran'); sys.exit(9)", 1),
        ("print('ERROR SUMMARY: 0 errors')", 1),
        ("print('every shape ran'); sys.exit(9 * (sys.argv[2] == 'racecheck'))", 1),
        ("os.environ['PYTORCH_NO_CUDA_MEMORY_CACHING']; print('every shape ran')", 0),
    ],
    ids=["clean", "errors", "stopped early", "a race", "allocations apart"],
)
def test_only_a_whole_and_clean_run_passes(sanitizer, lines, code):
    sanitizer(lines)
    assert gpu_sanitizer.main() == code


def hook(name: str, start: int, *inside: dict) -> list[dict]:
    return [
        {"cat": "user_annotation", "name": gpu_copies.PREFIX + name, "tid": 1, "ts": start, "dur": 10},
        *({"tid": 1, "ts": start + 1, "args": {}, "cat": "cuda_runtime", **event} for event in inside),
    ]


def copy(correlation: int, kind: str) -> list[dict]:
    return [{"cat": "gpu_memcpy", "name": f"Memcpy {kind} (Device -> Pinned)", "args": {"correlation": correlation}}]


def test_copies_and_waits_are_those_of_the_call_they_happen_in():
    trace = [
        *hook("slot", 0, {"name": "cudaMemcpyAsync", "args": {"correlation": 7}}),
        *hook("asking", 20, {"name": "cudaEventSynchronize"}),
        *hook("note", 40, {"name": "cudaMemcpyAsync", "args": {"correlation": 8}}),
        {"cat": "cuda_runtime", "name": "cudaStreamSynchronize", "tid": 1, "ts": 60, "args": {}},
        {"cat": "cuda_runtime", "name": "cudaStreamSynchronize", "tid": 2, "ts": 45, "args": {}},
        *copy(7, "DtoH"),
        *copy(8, "HtoD"),
        {"ph": "M", "name": "process_name"},
    ]
    found = gpu_copies.calls(trace)
    assert found == [("slot", 1, 0), ("asking", 0, 1), ("note", 0, 0)]
    assert gpu_copies.faults(found) == []


@pytest.mark.parametrize("found", [("slot", 2, 0), ("slot", 1, 1), ("slot at the cap", 1, 0), ("note", 0, 1)])
def test_one_more_than_a_hook_may_take_is_a_fault(found):
    (line,) = gpu_copies.faults([("slot", 1, 0), found])
    assert line == f"{found[0]}: {found[1]} copies, {found[2]} waits"
