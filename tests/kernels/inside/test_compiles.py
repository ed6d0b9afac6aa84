import os
import subprocess
import sys

# The interpreter knows no types: only a compiler finds two branches of a kernel that disagree. It needs no GPU.
SCRIPT = """
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from kernels import context, decide, match, tail, top1

INT, LONG, FLOAT = "*i32", "*i64", "*fp32"
SCRATCH = {"logits": "*bf16", "largest": FLOAT, "total": FLOAT, "total_of": FLOAT, "arrived": INT}
KERNELS = [
    (top1._partial_kernel, {"logits": "*bf16", "largest_out": FLOAT, "total_out": FLOAT}, {"BLOCK": 8192}),
    (top1._top1_kernel, {**SCRATCH, "prob_out": FLOAT, "token_out": LONG}, {"BLOCK": 2048, "PARTS": 128}),
    (
        decide._slot_kernel,
        {**SCRATCH, "ids": LONG, "drafts": LONG, "confidence": FLOAT, "total": INT, "tau": "fp32"},
        {"BLOCK": 2048, "PARTS": 128},
    ),
    (decide._assemble_kernel, {"token": LONG, "totals": LONG, "out": LONG}, {"WIDTH": 8, "FIRST": 0}),
    (match.match_kernel, {"best": LONG}, {"MIN_MATCH": 3, "MAX_MATCH": 64, "BLOCK": 1024}),
    (match.match_kernel, {"best": LONG, "slots": LONG}, {"MIN_MATCH": 3, "MAX_MATCH": 64, "BLOCK": 1024}),
    (
        tail._merge_kernel,
        {"best": LONG, "slots": LONG, "drafts": LONG, "totals": LONG},
        {"WIDTH": 8, "FILL": 0, "FIRST": 0},
    ),
    (match._gather_kernel, {"best": LONG}, {"WIDTH": 8}),
    (context._append_kernel, {"totals": LONG}, {"WIDTH": 16, "FIRST": 6}),
]
NUMBERS = {"stride", "vocab", "parts", "slot", "width", "forwards", "window", "filler"}
for kernel, kinds, fixed in KERNELS:
    kinds = {**dict.fromkeys(NUMBERS, "i32"), **kinds, **dict.fromkeys(fixed, "constexpr")}
    signature = {name: kinds.get(name, INT) for name in kernel.arg_names}
    compiled = triton.compile(ASTSource(kernel, signature, fixed), target=GPUTarget("cuda", 90, 32))
    print(compiled.metadata.name, len(compiled.asm["cubin"]) > 0)
"""


def test_every_kernel_compiles_for_a_gpu(tmp_path):
    clean = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        env={**clean, "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    names = ["_partial", "_top1", "_slot", "_assemble", "match", "match", "_merge", "_gather", "_append"]
    assert done.stdout.split("\n")[:-1] == [f"{name}_kernel True" for name in names]
