"""Slots: unprivileged processes that build one sandbox after another for the worker.

`launcher_process`, `slot_process`, `slot_root` and `deadline` run in the launcher and its slots, with the standard
library only. Entry points: `pool.SlotPool`, which reuses slots; `launcher.Launcher`, which starts them.
"""
