"""Celery's settings. Messages are untrusted hints with two values: JSON only, acknowledged early."""

from __future__ import annotations

from scheduler_project.settings.environment import read_environment

environment = read_environment()

CELERY_BROKER_URL = environment.celery_broker_url
# A frozen or absent Redis must cost seconds, never forever. `retry*` options stay unset: they disable batching.
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "socket_timeout": 5,
    "socket_connect_timeout": 2,
    "socket_keepalive": True,
    "health_check_interval": 10,
    "max_retries": 1,
    "interval_start": 0,
    "interval_step": 0.2,
    "interval_max": 0.5,
}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_RESULT_BACKEND = "django-db"
CELERY_RESULT_EXTENDED = True
CELERY_RESULT_EXPIRES = 7 * 24 * 3600

CELERY_TASK_SERIALIZER = CELERY_RESULT_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_DEFAULT_QUEUE = "system"
CELERY_TASK_ACKS_LATE = False
CELERY_TASK_PUBLISH_RETRY = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_SEND_TASK_EVENTS = True
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_WORKER_POOL = "threads"
CELERY_WORKER_CONSUMER = "workers.celery.consumer:Consumer"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_REDIRECT_STDOUTS = False
CELERY_ENABLE_UTC = True
CELERY_TIMEZONE = "UTC"

CELERY_BEAT_SCHEDULER = "jobs.beat.scheduler:Scheduler"
# Write at once: our tick() waits itself, so beat's deferred sync would never run.
CELERY_BEAT_SYNC_EVERY = 1
