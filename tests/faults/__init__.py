"""Everything that can go wrong, done to real vLLM trees: a clear message, the right exit code, and nothing lost."""
