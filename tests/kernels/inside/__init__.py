"""Tests of the payload modules that need torch; run by ../test_inside.py on the CPU and by `make gpu` on a GPU."""
