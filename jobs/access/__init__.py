"""Permissions and limits: tokens, logins, teams, secrets, quotas, rate limits, idempotency.

A refusal reveals nothing about what belongs to others, and limits also hold for concurrent requests.
Entry points: `tokens.issue_token`, `login.log_in`, `secret_grants.open_secrets`, `quotas`, `idempotency.respond_once`.
"""
