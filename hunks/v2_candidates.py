"""Lets a batch find the next larger graph of its own width."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/worker/gpu/cudagraph_utils.py",
    why="vLLM looks no further than the next captured number of tokens, whatever width that has",
    upstream="none: found with its batch-size schedule, where odd batches lose their graphs",
    remove_when="vLLM finds a decode graph for every batch size when several row counts are captured",
    calls=("graphs",),
    since="0.29",
    variants=(
        Variant(
            anchor=Anchor(
                "CudaGraphManager._init_candidates",
                "for mode in (CUDAGraphMode.FULL, CUDAGraphMode.PIECEWISE): ...",
            ),
            edit=Edit(Where.AFTER, "_radiance_graphs.order(self)"),
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
