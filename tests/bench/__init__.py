"""Benchmarks: what they measure they print, and nothing is asserted."""
