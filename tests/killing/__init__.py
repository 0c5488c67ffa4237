"""Beats killed at random moments, over and over, and then the auditor: `python -m tests.killing --minutes 5`."""
