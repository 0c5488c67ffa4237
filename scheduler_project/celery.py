"""The Celery application that beat, workers and Flower run."""

from __future__ import annotations

import os

from celery import Celery
from kombu.transport import TRANSPORT_ALIASES

from scheduler_project.checks import refuse_insecure_start

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scheduler_project.settings")
refuse_insecure_start()

# By name and for the usual addresses, so that they stay what every Celery tool understands.
TRANSPORT_ALIASES |= dict.fromkeys(("redis", "rediss"), "workers.transport:Transport")

app = Celery("punctual")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["jobs", "workers"])
# By name: it needs Django's settings, and only a worker ever loads it.
app.steps["worker"].add("workers.bootstep:AgentStep")
app.steps["consumer"].add("workers.event_flushing:EventFlushing")
