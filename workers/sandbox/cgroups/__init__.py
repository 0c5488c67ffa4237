"""Cgroups of slots: limits and usage of their runs, on v1 and v2.

`lifecycle` finds, creates and removes them; `v1` and `v2` implement its `SlotCgroup`.
"""
