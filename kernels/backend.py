"""Triton where it can run, and a stand-in that lets kernels be defined, never launched, where it cannot."""

from __future__ import annotations

import functools
import os
from typing import Any

import torch


class _Absent:
    """Takes the place of Triton: a kernel decorated by it stays a function that nobody calls."""

    def jit(self, function: Any = None, **_: Any) -> Any:
        return function or (lambda kernel: kernel)


try:
    import triton
    import triton.language as tl

    HAS_TRITON = True
except Exception:  # whatever is wrong with an installed Triton, vLLM's proposer must import
    triton = tl = _Absent()
    HAS_TRITON = False

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
