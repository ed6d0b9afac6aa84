"""Keeps the requests' tokens in device memory, where the match can scan them."""

from radiance_patch.hunk import Anchor, Edit, Hunk, Variant, Where

HUNK = Hunk(
    module=__name__,
    file="v1/worker/gpu/model_runner.py",
    why="a kernel that scans pinned host memory crosses the bus in every step",
    upstream="none: vLLM does so for its n-gram method alone",
    remove_when="vLLM merges n-gram continuations into a drafter's proposals on the V2 runner",
    calls=("speculator",),
    since="0.29",
    variants=(
        Variant(
            anchor=Anchor(
                "GPUModelRunner.__init__",
                "self.req_states = RequestState(\n"
                "    max_num_reqs=self.max_num_reqs,\n"
                "    max_model_len=self.max_model_len,\n"
                "    max_num_batched_tokens=self.max_num_tokens,\n"
                "    num_speculative_steps=self.num_speculative_steps,\n"
                "    vocab_size=self.vocab_size,\n"
                "    device=self.device,\n"
                "    num_prefill_lookahead=num_prefill_lookahead,\n"
                ")",
            ),
            edit=Edit(
                Where.AFTER,
                "_radiance_speculator.keep_tokens(self)",
            ),
            fingerprints={
                "0.29.0": "07084b7569377044",
                "0.30.0": "08c42966efddaace",
                "0.31.0": "238c9fd4776af4eb",
            },
        ),
        Variant(
            anchor=Anchor(
                "GPUModelRunner.__init__",
                "use_dense_all_token_ids = (\n"
                "    self.speculative_config is not None and self.speculative_config.use_ngram()\n"
                ")",
            ),
            edit=Edit(
                Where.AFTER,
                "use_dense_all_token_ids = _radiance_speculator.dense(self, use_dense_all_token_ids)",
            ),
            fingerprints={
                "0.32.0": "42f64c0290041fdf",
                "0.33.0": "d780704130737028",
            },
        ),
    ),
)
