"""`./punctual up`, `down` and `stack …`, one module per command.

Entry point: `cli.main`.
"""
