import os

import pytest

DEVICE = os.environ.get("RADIANCE_PATCH_TEST_DEVICE", "cpu")
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported: kernels run, slowly, in Python

import torch  # noqa: E402  # triton reads the variable above when torch brings it in


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def device():
    return torch.device(DEVICE)


@pytest.fixture(params=["kernel", "reference"])
def route(request, monkeypatch):
    """Run a test through the kernels and through their plain PyTorch stand-ins."""
    if request.param == "reference":
        for module in ("top1", "match", "decide", "context", "tail"):
            monkeypatch.setattr(f"kernels.{module}.runs_on", lambda device: False)
    return request.param
