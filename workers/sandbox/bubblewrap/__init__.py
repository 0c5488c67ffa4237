"""Bubblewrap: finding a usable version, and its command line for a run."""
