import pytest

from kernels import decide
from tests.bench import gpu_sanitizer


def test_every_shape_runs(device, capsys):
    gpu_sanitizer.shapes(str(device))
    assert capsys.readouterr().out == "every shape ran\n"


def test_a_shape_that_is_wrong_fails(device, monkeypatch):
    monkeypatch.setattr(decide, "take_slot", lambda drafts, slot, logits, *_: logits.argmin(-1))
    with pytest.raises(AssertionError):
        gpu_sanitizer.shapes(str(device))
