"""Gives a loaded drafter its draft controller, before vLLM measures the memory left for its KV cache."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/spec_decode/llm_base_proposer.py",
    why="the controller's memory must be accounted for, on every runner that loads a proposer",
    upstream="vllm-project/vllm#35301 (open): early exit of drafting",
    remove_when="vLLM stops drafting by confidence and merges n-gram continuations with MTP drafts",
    calls=("draft",),
    variants=(
        Variant(
            anchor=Anchor("SpecDecodeBaseProposer.load_model", "self.model = self._get_model()"),
            edit=Edit(Where.AFTER, "_radiance_draft.attach(self)"),
            fingerprints={
                "0.27.1": "675fed2f4221bfc8",
                "0.28.0": "afc48f6bdc55861b",
                "0.29.0": "7f2118db2a729308",
                "0.30.0": "347ad1a02d017f33",
                "0.31.0": "347ad1a02d017f33",
                "0.32.0": "347ad1a02d017f33",
                "0.33.0": "aaefa6446c1553be",
            },
        ),
    ),
)
