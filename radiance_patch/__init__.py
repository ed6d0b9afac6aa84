"""Patches an installed vLLM so that its speculative decoding adapts to the text."""

__version__ = "0.1.0"
