"""Real things to test against: published vLLM trees, a vLLM that runs on the CPU, and a model with an MTP layer."""
