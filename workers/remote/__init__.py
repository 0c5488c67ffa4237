"""`./punctual worker`: a worker on a machine that has only the address of the API and a token.

Entry points: `command.main`, `worker.RemoteWorker`.
"""
