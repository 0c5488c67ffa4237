"""A worker as a Celery worker: bootstep, consumer, transport, task, watchdog.

Messages are hints and are acknowledged early; only a claim in Postgres starts a run.
Entry points: `bootstep.AgentStep`, `tasks`.
"""
