"""Slots: unprivileged processes that build one sandbox after another for the worker.

`pool` reuses them and `launcher` talks to them. `launcher_process`, `slot_process`, `slot_root` and `deadline` run in
the launcher and its slots, with the standard library only.
"""
