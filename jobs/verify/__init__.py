"""Audits that verify the scheduler's promises from stored data.

They recompute every due instant, and check attempts against limits and waiting executions for stalls. They only read.
Entry points: `firings.audit_firings`, `attempts.audit_attempts`.
"""
