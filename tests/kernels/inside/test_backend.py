import subprocess
import sys

import pytest

SCRIPT = """
import sys
{breakage}
import torch
from kernels import draft, top1
token, probability = top1.top1(torch.tensor([[0.0, 0.0, 0.0], [1.0, float("-inf"), 0.0]]))
print(token.tolist(), draft.FEATURE)
"""


@pytest.mark.parametrize(
    "breakage",
    [
        "sys.modules['triton'] = None",
        "import types; sys.modules['triton'] = types.ModuleType('triton')",
    ],
    ids=["absent", "broken"],
)
def test_without_a_working_triton_the_references_serve(breakage):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(breakage=breakage)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("[0, 0] ")
