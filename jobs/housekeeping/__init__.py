"""Retention: deletes history in small transactions, oldest first, and never unfinished executions.

Entry point: `history_retention.prune_history`.
"""
