"""Bubblewrap: finding a usable version, and its command line for a run.

Entry points: `command_line.find_bwrap`, `command_line.plan_root`.
"""
