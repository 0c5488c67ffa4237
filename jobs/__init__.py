"""The control plane: defines jobs, schedules, places and executes them.

Packages are named by capability and import downwards only; `docs/architecture.md` has their order.
"""
