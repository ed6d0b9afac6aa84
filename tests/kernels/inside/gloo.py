"""Ranks of a tensor parallel group in processes of their own, over gloo, with vLLM's own layers."""

import multiprocessing
import os
import pickle
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch


def run(job: Callable[..., Any], *arguments: Any, size: int = 2, seconds: float = 120) -> list[Any]:
    """Return what `job(rank, *arguments)` returned on each rank; ranks that wait for each other to the end fail."""
    if os.environ.get("RADIANCE_PATCH_TEST_DEVICE", "cpu") != "cpu":
        pytest.skip("gloo's ranks are on the CPU")
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=_rank, args=(rank, size, folder, job, arguments)) for rank in range(size)]
        for process in ranks:
            process.start()
        end = time.monotonic() + seconds
        for process in ranks:
            process.join(max(0.0, end - time.monotonic()))
        waiting = [process for process in ranks if process.is_alive()]
        for process in waiting:
            process.kill()
            process.join()
        assert not waiting, f"{len(waiting)} of {size} ranks still wait for each other after {seconds} s"
        found = [pickle.loads(Path(folder, str(rank)).read_bytes()) for rank in range(size)]
        assert not (failed := [text for _, text in found if text]), "\n".join(failed)
        return [result for result, _ in found]


def _rank(rank: int, size: int, folder: str, job: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        found = _start(rank, size, folder, job, arguments), ""
    except Exception:
        found = None, traceback.format_exc()
    Path(folder, str(rank)).write_bytes(pickle.dumps(found))
    os._exit(0)  # gloo's threads have nothing left to say


def _start(rank: int, size: int, folder: str, job: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    # Names that differ leave vLLM with gloo rather than its shared memory.
    os.environ |= {"VLLM_DIST_IDENT": str(rank), "GLOO_SOCKET_IFNAME": "lo", "VLLM_LOGGING_LEVEL": "ERROR"}
    torch.set_num_threads(1)
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel

    with set_current_vllm_config(VllmConfig()), torch.inference_mode():
        init_distributed_environment(size, rank, f"file://{folder}/store", rank, "gloo")
        initialize_model_parallel(size)
        return job(rank, *arguments)


class Model(torch.nn.Module):
    """A draft model that is its head alone: vLLM's, split over the ranks."""

    def __init__(self, weight: torch.Tensor, **processor: Any) -> None:
        """weight: [V, H], the same on every rank."""
        super().__init__()
        from vllm.model_executor.layers.logits_processor import LogitsProcessor
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

        self.lm_head = ParallelLMHead(*weight.shape, params_dtype=weight.dtype)
        self.lm_head.weight_loader(self.lm_head.weight, weight)
        self.lm_head.quant_method.process_weights_after_loading(self.lm_head)
        self.logits_processor = LogitsProcessor(weight.shape[0], **processor)

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.logits_processor(self.lm_head, hidden_states)


def group() -> torch.distributed.ProcessGroup:
    from vllm.distributed import get_tp_group

    return get_tp_group().device_group
