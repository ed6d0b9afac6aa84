"""Captures decode graphs for more row counts than K + 1."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/worker/gpu/cudagraph_utils.py",
    why="a batch that verifies fewer rows would lose its FULL graph",
    upstream="none: vLLM does so for a batch-size schedule alone",
    remove_when="vLLM captures decode graphs for several row counts",
    calls=("graphs",),
    since="0.29",
    variants=(
        Variant(
            anchor=Anchor(
                "CudaGraphManager._init_candidates",
                "capture_varlen_decode = separate_decode_routine and bool(decode_mode) and self.varlen_decode",
            ),
            edit=Edit(Where.BEFORE, "decode_query_lens = _radiance_graphs.widths(self, decode_query_lens)"),
            fingerprints={
                "0.29.0": "141528cb8deed043",
                "0.30.0": "f227d056a72cdfcd",
                "0.31.0": "f227d056a72cdfcd",
                "0.32.0": "0bc96abfd8ededcd",
                "0.33.0": "0bc96abfd8ededcd",
            },
        ),
    ),
)
