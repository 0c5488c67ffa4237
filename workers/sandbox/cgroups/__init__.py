"""Cgroups of slots: limits and usage of their runs, on v1 and v2.

`v1` and `v2` implement `lifecycle.SlotCgroup`. Entry points: `lifecycle.find_parents`, `lifecycle.make_cgroup`.
"""
