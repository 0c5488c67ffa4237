"""Runs one untrusted program in bubblewrap, within limits, and reports its outcome.

Invariant: this package knows nothing of jobs, Django, Celery or storage. Entry points: `host.detect_host`,
`sandbox.Sandbox.start` and `run.Run.stream`; `values` has their inputs and outputs.
"""
