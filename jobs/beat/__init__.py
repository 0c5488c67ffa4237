"""Celery beat's scheduler and its stages: fire, place, publish, reap, fan out, deliver, send system tasks.

Any number of beats run at once and none is special. An error in one stage is logged and delays no other.
Entry points: `scheduler.Scheduler` (the Celery override), `firing` and `stages` (one step each).
"""
