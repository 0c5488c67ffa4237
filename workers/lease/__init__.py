"""The worker's lease: its renewal, its runs, and the guardian that kills them before the lease ends.

No run outlives the lease of its worker, even if the worker or the guardian is frozen.
Entry points: `agent.Agent`, `guardian.Guardian`, `held_runs.HeldRuns`.
"""
