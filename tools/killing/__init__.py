"""Beats killed at random moments, over and over, and then the auditor: `python -m tools.killing --minutes 5`."""
