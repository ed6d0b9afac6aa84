"""Join SmolLM2-135M-Instruct and the MTP head of this folder into a checkpoint that vLLM serves and drafts from.

    build_model.py SMOLLM2.gguf mtp_head.safetensors FOLDER

Needs torch, transformers, safetensors, gguf and accelerate: tests/real/engine.py runs it in the
environment that it makes. Why MiMo: see README.md.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

Weights = dict[str, torch.Tensor]


def backbone(model: Any) -> Weights:
    """Return the weights of a bias-free Llama under MiMo's names, in bfloat16, with the biases it wants at zero."""
    config = model.config
    weights = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in model.state_dict().items()}
    # The two are one tensor in memory, which the file format refuses to write twice.
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    heads = {
        "q_proj": config.num_attention_heads,
        "k_proj": config.num_key_value_heads,
        "v_proj": config.num_key_value_heads,
    }
    for layer in range(config.num_hidden_layers):
        for projection, count in heads.items():
            bias = torch.zeros(count * config.head_dim, dtype=torch.bfloat16)
            weights[f"model.layers.{layer}.self_attn.{projection}.bias"] = bias
    return weights


def mimo_config(llama: Any) -> dict[str, Any]:
    """Return the config.json of the joined model; sizes come from ``llama``, the rest is fixed by the head."""
    sizes = (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "max_position_embeddings",
        "vocab_size",
    )
    return {
        "architectures": ["MiMoForCausalLM"],
        "model_type": "qwen2",
        "num_nextn_predict_layers": 1,
        **{name: getattr(llama, name) for name in sizes},
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
        "use_sliding_window": False,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
        "torch_dtype": "bfloat16",
    }


def main(gguf: Path, head: Path, folder: Path) -> None:
    """Write the joined model, its config and its tokenizer to ``folder``."""
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    weights = backbone(model) | load_file(head)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(mimo_config(model.config), indent=1))
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
