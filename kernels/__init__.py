"""What radiance-patch places beside vLLM as `vllm/_radiance/`; imports nothing of radiance_patch."""
