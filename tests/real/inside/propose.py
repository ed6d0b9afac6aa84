"""Drive the patched propose of a published V2 speculator: ``propose.py JOB RESULT``.

The trees of all releases are at hand as Python files, without compiled parts and without a
GPU: what launches kernels or replays graphs is replaced by a count, and the code between
(propose, capture, their loops and our hooks in them) is the release's own. The JOB is
{"k": K}; tests/e2e/test_propose.py asserts on the RESULT.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from vllm._radiance import speculator
from vllm._radiance.steps import PLAN, Plan
from vllm.config.compilation import CUDAGraphMode
from vllm.v1.worker.gpu.cudagraph_utils import BatchExecutionDescriptor
from vllm.v1.worker.gpu.spec_decode.mtp.speculator import MTPSpeculator

ROWS, BATCH, STALE = 4, 2, 7
# Where the MTP speculator has its propose from; the file moved in 0.32.
OWNER = next(kind for kind in MTPSpeculator.__mro__ if "propose" in vars(kind))
MODULE: Any = sys.modules[OWNER.__module__]


class Graphs:
    """A graph manager that counts replays by the graph's name, and calls what it is given to capture."""

    use_breakable_cg = False

    def __init__(self, owner: Any, wide: int, steps: int) -> None:
        self.owner, self.wide, self.steps = owner, wide, steps
        full = {CUDAGraphMode.FULL: [desc_of(owner.mode, rows) for rows in {1, wide}]}
        self._capture_descs = full
        self.graphs: dict[Any, Any] = {}
        self.captured: list[Any] = []

    def capture(self, forward: Any, *_: Any, **__: Any) -> None:
        """Capture: what is counted on the way is what the graph holds."""
        for desc in self._capture_descs[CUDAGraphMode.FULL]:
            before = dict(self.owner.counts)
            more = {"num_speculative_steps": self.steps} if self.steps and self.owner.counted else {}
            forward(BATCH, BATCH * self.wide, {}, {}, None, CUDAGraphMode.NONE, **more)
            self.graphs[desc] = {name: self.owner.counts[name] - before[name] for name in before}
            self.captured.append([desc.max_query_len, self.graphs[desc]])

    def specialize_spec_tokens(self, desc: Any, _: int) -> Any:
        """Return the graph: there is no batch-size schedule."""
        return desc

    def run_fullgraph(self, desc: Any) -> None:
        """Replay."""
        for name, count in self.graphs[desc].items():
            self.owner.counts[name] += count


def desc_of(mode: Any, rows: int) -> Any:
    """Return the description of a batch of `rows` a request."""
    return BatchExecutionDescriptor(cg_mode=mode, num_tokens=BATCH * rows, num_reqs=BATCH, uniform_token_count=rows)


def config_of(k: int) -> Any:
    """Return what the hooks read of a VllmConfig."""
    return SimpleNamespace(
        num_speculative_tokens=k,
        scheduler_config=SimpleNamespace(max_num_seqs=ROWS),
        model_config=SimpleNamespace(max_model_len=64, get_vocab_size=lambda: 100),
        speculative_config=SimpleNamespace(
            use_local_argmax_reduction=False, uses_dynamic_speculative_decoding=lambda: False
        ),
        parallel_config=SimpleNamespace(tensor_parallel_size=1),
    )


def build(k: int, *, graphs: bool, in_place: bool) -> Any:
    """Return a speculator of the release whose launches are counted: heads, draft steps, updates of metadata."""
    counts = {"first passes": 0, "heads": 0, "draft steps": 0, "updates": 0}

    def count(name: str, answer: Any = None) -> Any:
        def counted(*_: Any, **__: Any) -> Any:
            counts[name] += 1
            return answer

        return counted

    hidden = torch.zeros(64, 8)

    class Counted(MTPSpeculator):  # type: ignore[misc]
        """The release's class, with the launches replaced."""

        max_model_len = 64

        def _copy_request_inputs(self, *_: Any, **__: Any) -> None: ...
        def _prepare_eplb_forward(self, *_: Any) -> None: ...
        def _run_model(self, *_: Any, **__: Any) -> Any:
            counts["first passes"] += 1
            return hidden, hidden

        def sample_draft(self, *_: Any, **__: Any) -> Any:
            counts["heads"] += 1
            return torch.zeros(BATCH, dtype=torch.int64)

        def _generate_draft(self, *_: Any, **__: Any) -> None:
            counts["draft steps"] += 1

        def _build_uniform_attn_metadata(self, **_: Any) -> Any:
            return {}

        def _build_draft_attn_metadata(self, **_: Any) -> Any:
            return {}

    made = Counted.__new__(Counted)
    made.counts = counts
    made.counted = "num_speculative_steps" in OWNER._generate_draft.__code__.co_varnames
    made.mode = CUDAGraphMode.FULL if graphs else CUDAGraphMode.NONE
    made.vllm_config, made.method, made.model = config_of(k), "mtp", None
    made.speculative_config = made.vllm_config.speculative_config
    made.num_speculative_steps, made.max_num_reqs = k, ROWS
    made.dp_size, made.dp_rank, made.pcp_manager, made.model_state = 1, 0, None, None
    made.last_token_indices = torch.zeros(ROWS, dtype=torch.int64)
    made.idx_mapping = torch.zeros(ROWS, dtype=torch.int32)
    made.sample_src_positions = torch.zeros(ROWS, dtype=torch.int64)
    made.current_draft_step = torch.zeros((), dtype=torch.int64)
    made.hidden_states = torch.zeros(64, 8)
    made.temperature = made.seeds = torch.zeros(ROWS)
    made.draft_logits = None
    made.draft_tokens = torch.full((ROWS, k), STALE)
    made.input_buffers = SimpleNamespace(
        positions=torch.zeros(64, dtype=torch.int64), query_start_loc=torch.zeros(ROWS + 1), input_ids=torch.zeros(64)
    )
    made.target_input_buffers = made.input_buffers
    made.block_tables = SimpleNamespace(compute_slot_mappings=lambda *_: None, input_block_tables=[None], cp_size=1)
    group = SimpleNamespace(
        update_draft_decode_metadata=count("updates"), map_to_kernel_block_table=lambda _: None, kv_cache_group_id=0
    )
    made.attn_groups, made.target_attn_groups, made.kv_cache_config = [[group]], [], None
    renamed = hasattr(OWNER, "_configure_decode_metadata_update")
    setattr(made, "supports_decode_metadata_update" if renamed else "use_fused_multi_step_decode", in_place)
    made.prefill_cudagraph_manager = Graphs(made, 1 + k, 0)
    made.decode_cudagraph_manager = Graphs(made, 1, k)
    speculator._depths[id(made.vllm_config)] = speculator.Depth(made.vllm_config, torch.device("cpu"))
    MODULE.prepare_prefill_inputs = MODULE.prepare_decode_inputs = lambda *_, **__: None
    MODULE.build_slot_mappings_by_layer = lambda *_: {}
    MODULE.get_uniform_decode_token_count = lambda *_: 1
    MODULE.dispatch_cg_and_sync_dp = lambda _, reqs, tokens, *__, **___: (desc_of(made.mode, tokens // reqs), None)
    return made


def batch_of(rows: int) -> Any:
    """Return a batch of decoding requests of so many rows each."""
    return SimpleNamespace(
        num_tokens=BATCH * rows,
        num_tokens_after_padding=BATCH * rows,
        num_reqs=BATCH,
        num_scheduled_tokens=torch.full((BATCH,), rows).numpy(),
        seq_lens_cpu_upper_bound=torch.full((BATCH,), 20),
        seq_lens=torch.full((BATCH,), 20),
        idx_mapping=torch.arange(BATCH),
        decode_graph_eligible=True,
        has_prefill=False,
    )


def step(made: Any, k: int, planned: int | None) -> dict[str, Any]:
    """Play a step that was planned with so many forwards (None: a dummy run); return what it launched."""
    made.draft_tokens.fill_(STALE)
    before = dict(made.counts)
    dummy = planned is None
    output = SimpleNamespace(**{PLAN: Plan(planned or 0, 0, {})})
    speculator.begin(made, output, dummy_run=dummy)
    # A batch that drafts nothing verifies nothing, once it goes on so.
    rows = 1 + (planned if planned == 0 else k)
    hidden = torch.zeros(BATCH * rows, 8)
    drafts = made.propose(batch_of(rows), {}, {}, hidden, None, *[torch.zeros(ROWS)] * 6, dummy_run=dummy)
    answered = speculator.depth_of(made).answered
    launched = {name: made.counts[name] - before[name] for name in before}
    return {"shape": list(drafts.shape), "answered": answered, **launched}


class Tokens:
    """Stands for the requests' tokens: how they were made is all that is asked."""

    dtype, device = torch.int32, torch.device("cpu")

    def __init__(self, size: Any, dtype: Any, device: Any, uva_instead_of_gpu: bool = False) -> None:
        self.made = list(size), str(dtype), str(device), uva_instead_of_gpu


def main(given: Path, result: Path) -> None:
    """Try every way to launch draft steps."""
    k = json.loads(given.read_text())["k"]
    # Graphs are captured here without a GPU.
    torch.cuda.is_current_stream_capturing = lambda: True
    facts: dict[str, Any] = {}
    with torch.inference_mode():
        for graphs in (True, False):
            for in_place in (True, False):
                made = build(k, graphs=graphs, in_place=in_place)
                made.capture()
                way = f"{'graphs' if graphs else 'eager'}, {'in place' if in_place else 'rebuilt'}"
                facts[way] = {
                    "steps": [step(made, k, planned) for planned in [*range(k + 1), None]],
                    "captured first passes": made.prefill_cudagraph_manager.captured,
                    "captured draft steps": made.decode_cudagraph_manager.captured,
                }
    states = SimpleNamespace(all_token_ids=Tokens((0,), None, None, True), max_num_reqs=3, max_model_len=64)
    dense, speculator.dense = speculator.dense, lambda runner, _: runner.live
    for live in (True, False):
        runner = SimpleNamespace(req_states=SimpleNamespace(**vars(states)), live=live)
        speculator.keep_tokens(runner)
        facts[f"tokens, live {live}"] = [*runner.req_states.all_token_ids.made]
    speculator.dense = dense
    result.write_text(json.dumps(facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
