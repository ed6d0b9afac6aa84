"""Make a bigger model that computes the same function, so that it costs like a large one.

SmolLM2-135M plus its trained MTP layer has real text, real acceptance and real
confidences, but its forward pass costs almost nothing on a data-centre GPU.
This pads it (hidden size, heads, MLP width, layers, vocabulary) without changing
a single logit: padded hidden units stay zero, extra heads, extra MLP units and
extra layers are random but projected out by zero columns, RMSNorm weights and
epsilon are rescaled for the larger mean, and extra vocabulary rows
repeat a token that is never likely, so they never win the argmax and carry almost
no probability.

The text and acceptance are therefore those of the small model, the time per step
that of the large one.

    python widen.py SRC_DIR OUT_DIR --hidden 4032 --layers 32 --intermediate 14336 --kv-heads 21 --vocab 151936

SRC_DIR holds a MiMo-style checkpoint (config.json with architectures
["MiMoForCausalLM"], model.safetensors with `model.mtp_layers.0.*`).
"""

import argparse
import json
import math
import re
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

HEAD_DIM = 64
UNLIKELY_TOKEN = 35603  # lowest mean logit of SmolLM2-135M-Instruct


def widen(
    src: Path, out: Path, hidden: int, layers: int, intermediate: int, kv_heads: int, vocab: int, device: str
) -> None:
    config = json.loads((src / "config.json").read_text())
    weights = {name: w.to(device) for name, w in load_file(src / "model.safetensors").items()}
    h0, groups = config["hidden_size"], config["num_attention_heads"] // config["num_key_value_heads"]
    heads = kv_heads * groups
    if heads * HEAD_DIM != hidden:  # vLLM's Qwen2 takes head_dim = hidden / heads
        raise SystemExit(
            f"hidden must be {HEAD_DIM} x {groups} x kv-heads, e.g. {heads * HEAD_DIM} for {kv_heads} kv-heads"
        )
    norm_scale = math.sqrt(h0 / hidden)
    generator = torch.Generator(device=device).manual_seed(0)

    def noise(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator, device=device, dtype=torch.float32) * 0.02).to(torch.bfloat16)

    def pad(w: torch.Tensor, rows: int, cols: int, zero_new_rows: bool, zero_new_cols: bool) -> torch.Tensor:
        full = noise(rows, cols)
        if zero_new_rows:
            full[w.shape[0] :, :] = 0
        if zero_new_cols:
            full[:, w.shape[1] :] = 0
        full[: w.shape[0], : w.shape[1]] = w
        return full

    def norm(w: torch.Tensor) -> torch.Tensor:
        full = torch.ones(hidden, device=device)
        full[: w.shape[0]] = w.float() * norm_scale
        return full.to(torch.bfloat16)

    shape_of = {
        # reads the residual stream: new columns may be random, they meet zeros
        "q_proj": (heads * HEAD_DIM, hidden, False, False),
        "k_proj": (kv_heads * HEAD_DIM, hidden, False, False),
        "v_proj": (kv_heads * HEAD_DIM, hidden, False, False),
        "gate_proj": (intermediate, hidden, False, False),
        "up_proj": (intermediate, hidden, False, False),
        # writes the residual stream: new rows and new columns must be zero
        "o_proj": (hidden, heads * HEAD_DIM, True, True),
        "down_proj": (hidden, intermediate, True, True),
    }

    def widen_one(name: str, w: torch.Tensor) -> torch.Tensor:
        module = name.split(".")[-2]
        if module in shape_of and name.endswith("weight"):
            rows, cols, zr, zc = shape_of[module]
            return pad(w, rows, cols, zr, zc)
        if module in shape_of:  # bias of q, k, v
            full = torch.zeros(shape_of[module][0], device=device, dtype=torch.bfloat16)
            full[: w.shape[0]] = w
            return full
        if module == "input_proj":  # [H, 2H]: two halves, hidden state then embedding
            full = noise(hidden, 2 * hidden)
            full[h0:, :] = 0
            full[:h0, :h0] = w[:, :h0]
            full[:h0, hidden : hidden + h0] = w[:, h0:]
            return full
        if module == "embed_tokens":
            full = torch.zeros(vocab, hidden, device=device, dtype=torch.bfloat16)
            full[: w.shape[0], :h0] = w
            return full
        if "norm" in module:
            return norm(w)
        raise KeyError(name)

    wide = {name: widen_one(name, w) for name, w in weights.items() if name != "lm_head.weight"}
    # Extra vocabulary rows repeat the row of a token that always scores far (over 16 nats) below the best.
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    full = noise(vocab, hidden)
    full[: head.shape[0], :h0] = head
    full[head.shape[0] :, :h0] = head[UNLIKELY_TOKEN]
    wide["lm_head.weight"] = full

    identity = {n: w for n, w in wide.items() if n.startswith("model.layers.0.")}
    for layer in range(config["num_hidden_layers"], layers):
        for name, w in identity.items():
            new = re.sub(r"layers\.0\.", f"layers.{layer}.", name)
            if "o_proj" in name or "down_proj" in name:
                wide[new] = torch.zeros_like(w)
            elif name.endswith("weight") and w.dim() == 2:
                wide[new] = noise(*w.shape)
            else:
                wide[new] = w.clone()

    config.update(
        hidden_size=hidden,
        num_hidden_layers=layers,
        intermediate_size=intermediate,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=HEAD_DIM,
        vocab_size=vocab,
        tie_word_embeddings=False,
        rms_norm_eps=config["rms_norm_eps"] * h0 / hidden,
    )
    out.mkdir(parents=True, exist_ok=True)
    for file in src.iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            shutil.copy(file, out / file.name)
    (out / "config.json").write_text(json.dumps(config, indent=1))
    save_file({n: w.contiguous().cpu() for n, w in wide.items()}, out / "model.safetensors", metadata={"format": "pt"})
    print("parameters", sum(w.numel() for w in wide.values()) / 1e9, "B")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("src", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--hidden", type=int, default=4032)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--intermediate", type=int, default=14336)
    parser.add_argument("--kv-heads", type=int, default=21)
    parser.add_argument("--vocab", type=int, default=151936)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    widen(**vars(parser.parse_args()))
