"""Triton where it can run, and a stand-in that lets kernels be defined, never launched, where it cannot."""

from __future__ import annotations

import functools
import importlib.util
import os
from typing import Any

import torch

HAS_TRITON = importlib.util.find_spec("triton") is not None
if HAS_TRITON:
    import triton
    import triton.language as tl
else:

    class _Absent:
        """Takes any decorator and annotation; a kernel defined with it is None."""

        def jit(self, function: Any) -> Any:
            return function

        def __getattr__(self, name: str) -> Any:
            return None

    triton = tl = _Absent()

__all__ = ["HAS_TRITON", "runs_on", "tl", "triton"]


@functools.cache
def _interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


def runs_on(device: torch.device) -> bool:
    """Whether kernels run on tensors of `device`: a GPU, or anything under Triton's interpreter.

    Triton being installed proves nothing: the CPU build of vLLM brings it along without a
    backend (xgrammar asks for it).
    """
    return HAS_TRITON and (device.type == "cuda" or _interpreted())
