"""Benchmarks named by the claim they test: each `run` returns figures for a machine, each `show` a table."""
