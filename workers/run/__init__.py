"""One run: fetch and verify the program, run it in a sandbox, stream its log, store its outputs.

Entry point: `run.run_attempt`.
"""
