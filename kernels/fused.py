"""vLLM's own fused kernels for the layers of a draft model that is not compiled.

vLLM leaves norms and rotary embeddings to torch.compile, and runs them as plain PyTorch
where nothing compiles them: a draft model without @support_torch_compile (MiMo's, GLM's,
Ernie's and others in vllm/model_executor/models/*_mtp.py) launches eight kernels a norm and
eighteen a rotary embedding, a third of a draft forward (tests/bench/RESULTS.md). An engine
that compiles nothing (enforce_eager) runs the same layers with these kernels. Called by the
hunk v2_fused_layers.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from . import guard, settings
from .speculator import depth_of

logger = logging.getLogger("vllm.radiance")

# What the log calls it, and guard.broken.
FEATURE = "fused draft layers"
# How far a fused layer may be from the plain one, as shares of the largest number.
TOLERANCE = 0.02
# Tokens a layer is tried with.
TRIED = 4
COMPILED = "TorchCompileWithNoGuardsWrapper"


@guard.safe(FEATURE, lambda *_: None)
def fuse(speculator: Any, target_model: nn.Module) -> None:
    """Let the draft model's layers use fused kernels (load_model), and say so or why not."""
    depth = depth_of(speculator)
    if depth is None:
        return
    if not settings.current().fused_draft:
        logger.info("radiance-patch: the drafter's layers are as vLLM has them: RADIANCE_DRAFT_FUSED is 0")
        return
    if torch.version.hip:
        # There the kernels want shapes that vLLM makes first (vllm/kernels/vllm_c.py).
        logger.info("radiance-patch: the drafter's layers are as vLLM has them: ROCm")
        return
    norms, rotary = fused(speculator.model, target_model)
    if norms or rotary:
        logger.info("radiance-patch: fused kernels for %d norms and %d rotary embeddings of the drafter", norms, rotary)
    else:
        logger.info("radiance-patch: the drafter's layers are compiled, or fused already")


def fused(model: nn.Module, target: nn.Module) -> tuple[int, int]:
    """Fuse the layers of `model` that nothing compiles; returns how many norms and how many rotary embeddings.

    A layer that `target` holds too is left alone, as the target is compiled; of a rotary
    embedding, which vLLM shares between all layers, the draft model gets a copy.
    """
    shared = {id(layer) for layer in target.modules()}
    copies: dict[int, nn.Module | None] = {}
    norms: set[int] = set()
    for owner, name, layer in _own(model, shared):
        if _is_norm(layer) and id(layer) not in shared:
            if id(layer) not in norms and _fuse_norm(layer):
                norms.add(id(layer))
        elif _is_rotary(layer):
            if id(layer) not in copies:
                copies[id(layer)] = _fused_rotary(layer)
            replacement = copies[id(layer)]
            if replacement is not None:
                owner._modules[name] = replacement
    return len(norms), sum(replacement is not None for replacement in copies.values())


def _own(model: nn.Module, shared: set[int]) -> Iterator[tuple[nn.Module, str, Any]]:
    """Yield (owner, name, layer) for what a model holds outside of what torch.compile sees and of modules `shared`."""
    if id(model) in shared:
        return
    if COMPILED in {kind.__name__ for kind in type(model).__mro__} and not getattr(model, "do_not_compile", True):
        return
    for name, layer in list(model._modules.items()):
        if layer is not None:
            yield model, name, layer
            yield from _own(layer, shared)


def _plain(layer: Any, name: str) -> bool:
    """Whether a layer is a custom operation of this kind, as vLLM defines it, that runs as plain PyTorch."""
    kind = type(layer)
    chosen = getattr(layer, "_forward_method", None)
    return (
        getattr(kind, "forward_native", None) is not None
        and kind.forward_native.__qualname__ == f"{name}.forward_native"
        and kind.forward_cuda.__qualname__ == f"{name}.forward_cuda"
        and getattr(chosen, "__func__", None) is kind.forward_native
    )


def _is_norm(layer: Any) -> bool:
    return _plain(layer, "RMSNorm") and layer.variance_size_override is None and layer.has_weight


def _is_rotary(layer: Any) -> bool:
    return _plain(layer, "RotaryEmbedding")


def _fuse_norm(layer: Any) -> bool:
    """Let a norm use one kernel, if that gives the plain one's numbers."""
    plain = layer._forward_method

    def forward(x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
        # The kernel wants one dtype (vllm/kernels/vllm_c.py).
        if x.dtype != layer.weight.dtype:
            return plain(x, residual)
        if residual is None:
            out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
            torch.ops._C.rms_norm(out, x, layer.weight.data, layer.variance_epsilon)
            return out
        torch.ops._C.fused_add_rms_norm(x, residual, layer.weight.data, layer.variance_epsilon)
        return x, residual

    x, residual = _tried(layer.weight, layer.weight.shape[0]), _tried(layer.weight, layer.weight.shape[0])
    if not _agree(lambda call: (call(x.clone()), *call(x.clone(), residual.clone())), plain, forward):
        return False
    layer._forward_method = forward
    return True


def _fused_rotary(layer: Any) -> nn.Module | None:
    """Return a copy of a rotary embedding that uses one kernel, None if that does not give the plain one's numbers."""
    made: Any = copy.copy(layer)
    # What one of the two brings to another dtype or device, or loses for a weight update, is not the other's.
    made._buffers = dict(layer._buffers)
    made._non_persistent_buffers_set = set(layer._non_persistent_buffers_set)
    made._forward_method = made.forward_cuda
    weight = layer.cos_sin_cache
    query, key = _tried(weight, 2 * layer.head_size), _tried(weight, layer.head_size)
    positions = torch.arange(TRIED, device=weight.device)
    agree = _agree(
        lambda call: call(positions, query.clone(), key.clone()), layer._forward_method, made._forward_method
    )
    return made if agree else None


def _tried(like: torch.Tensor, width: int) -> torch.Tensor:
    """Return numbers [TRIED, width] to try a layer with."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(TRIED, width, generator=generator).to(like)


def _agree(use: Callable[[Callable[..., Any]], Any], plain: Callable[..., Any], fast: Callable[..., Any]) -> bool:
    """Whether two ways to run a layer give the same numbers; a kernel that is not there or will not do gives none."""
    try:
        with torch.no_grad():
            wanted, got = use(plain), use(fast)
    except (AttributeError, RuntimeError, ValueError):
        return False
    for one, other in zip(wanted, got, strict=True):
        largest = float(one.abs().max())
        if not 0.0 < largest < float("inf"):
            return False
        if not torch.allclose(one.float(), other.float(), rtol=TOLERANCE, atol=TOLERANCE * largest):
            return False
    return True
