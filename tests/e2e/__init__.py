"""A real vLLM, stock and patched, side by side."""
