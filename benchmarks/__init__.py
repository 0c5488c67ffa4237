"""Benchmarks: each runs with one command and prints one JSON line, beside a floor measured in the same run."""
