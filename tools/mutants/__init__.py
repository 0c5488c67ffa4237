"""Mistakes on purpose, as patches: each must be caught by the check that it names. `python -m tools.mutants`."""
