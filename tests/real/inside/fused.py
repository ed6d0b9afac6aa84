"""Try the fused layers on a real draft model: ``fused.py JOB RESULT``.

The layers, and the kernels behind torch.ops._C, are those of the CPU build; the layers are
put as CUDA engines have them, plain where nothing compiles them. The JOB is {"model":
FOLDER}; tests/e2e/test_fused.py asserts on the RESULT.
"""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from serve import runner  # type: ignore[import-not-found]  # beside this script
from torch import nn
from vllm import LLM
from vllm._radiance import fused, guard, speculator

KINDS = ("RMSNorm", "RotaryEmbedding")


class TorchCompileWithNoGuardsWrapper(nn.Module):  # type: ignore[misc]  # torch is not there where types are checked
    """A module as vLLM's decorator leaves it: what is in it is compiled."""

    do_not_compile = False

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner


def layers(model: nn.Module) -> dict[str, Any]:
    """Return the norms and rotary embeddings of a model by name."""
    return {name: layer for name, layer in model.named_modules() if type(layer).__name__ in KINDS}


def plain(model: nn.Module) -> None:
    """Put a model's layers as they are where vLLM leaves them to torch.compile."""
    for layer in layers(model).values():
        layer._forward_method = layer.forward_native


def fast(model: nn.Module) -> list[str]:
    """Return which layers use a fused kernel."""
    return sorted(
        name
        for name, layer in layers(model).items()
        if getattr(layer._forward_method, "__name__", "") not in ("forward_native", "forward_cpu")
    )


def furthest(layer: Any, quick: Any) -> float:
    """Return how far a layer's fused way is from its plain one, on bfloat16 and float32, relative to the largest."""
    native = type(layer).forward_native.__get__(layer)
    worst = 0.0
    for dtype in (torch.float32, torch.bfloat16):
        pairs: list[Any] = []
        if type(layer).__name__ == "RMSNorm":
            x, residual = (torch.randn(7, layer.hidden_size).to(dtype) for _ in range(2))
            pairs += [(native(x.clone()), quick(x.clone()))]
            pairs += zip(native(x.clone(), residual.clone()), quick(x.clone(), residual.clone()), strict=True)
        else:
            query, key = (torch.randn(7, heads * layer.head_size).to(dtype) for heads in (9, 3))
            at = torch.randint(0, 500, (7,))
            pairs += zip(native(at, query.clone(), key.clone()), quick(at, query.clone(), key.clone()), strict=True)
        for one, other in pairs:
            worst = max(worst, float((one.float() - other.float()).abs().max() / one.float().abs().max()))
    return worst


def main(given: Path, result: Path) -> None:
    """Fuse, compare, and be refused."""
    llm = LLM(
        model=json.loads(given.read_text())["model"],
        dtype="float32",
        max_model_len=512,
        max_num_seqs=2,
        enforce_eager=True,
        speculative_config={"method": "mtp", "num_speculative_tokens": 2},
    )
    served = runner(llm)
    model, target = served.drafter.model, served.model
    facts: dict[str, Any] = {"layers": sorted(layers(model)), "as served": list(fused.fused(model, target))}
    with torch.inference_mode():
        plain(model)
        before, state = layers(model), sorted(model.state_dict())
        facts["compiled"] = list(fused.fused(TorchCompileWithNoGuardsWrapper(model), target))
        facts["all the target's"] = list(fused.fused(nn.ModuleList([model]), nn.ModuleList([model])))
        # All but the rotary embedding, of which the draft model gets a copy, are the target's own here.
        facts["the target's"] = list(fused.fused(nn.ModuleList([model]), nn.ModuleList([*before.values()])))
        model.get_submodule("model.mtp_layers.30.mtp_block.self_attn").rotary_emb = next(
            layer for name, layer in before.items() if "rotary" in name
        )
        norm = next(layer for name, layer in before.items() if "token_layernorm" in name)
        weight, norm.weight.data = norm.weight.data, torch.zeros_like(norm.weight.data)
        facts["no weights yet"] = list(fused.fused(model, target))
        norm.weight.data = weight
        facts["but for those"] = fast(model)
        plain(model)
        v2 = SimpleNamespace(
            vllm_config=served.vllm_config, device=torch.device("cpu"), max_num_reqs=2, max_model_len=512
        )
        owner = SimpleNamespace(vllm_config=served.vllm_config, model=model)
        fused.fuse(owner, target)
        facts["depth not live"] = fast(model)
        speculator.dense(v2, False)
        torch.version.hip = "6.4"
        fused.fuse(owner, target)
        facts["on ROCm"] = fast(model)
        torch.version.hip = None
        fused.fuse(owner, target)
        facts["fused"] = fast(model)
        rotary = next(layer for name, layer in before.items() if "rotary" in name)
        facts["the target's rotary"] = [
            any(layer is rotary for layer in target.modules()),
            rotary._forward_method.__name__,
            any(layer is rotary for layer in model.modules()),
        ]
        mine = next(layer for name, layer in layers(model).items() if "rotary" in name)
        del mine.cos_sin_cache
        facts["the target's cache"] = [
            "cos_sin_cache" in rotary._buffers,
            [name for name in nn.ModuleList([rotary]).state_dict() if "cos" in name],
        ]
        mine.register_buffer("cos_sin_cache", rotary.cos_sin_cache, persistent=False)
        facts["state"] = state == sorted(model.state_dict())
        now = layers(model)
        facts["apart"] = {name: furthest(layer, now[name]._forward_method) for name, layer in before.items()}
        facts["broken"] = sorted(guard.broken)
    result.write_text(json.dumps(facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)
