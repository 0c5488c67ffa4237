"""The Celery application of beat, workers and Flower."""

from __future__ import annotations

import os

from celery import Celery
from kombu.transport import TRANSPORT_ALIASES

from scheduler_project.checks import require_secure_settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scheduler_project.settings")
require_secure_settings()
# Workers reject Flower's control commands, so hide its buttons.
os.environ.setdefault("FLOWER_READ_ONLY", "true")

# Replaces the transport of redis:// URLs, so that broker URLs stay readable for every Celery tool.
TRANSPORT_ALIASES |= dict.fromkeys(("redis", "rediss"), "workers.celery.transport:Transport")

app = Celery("punctual")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["jobs", "workers.celery"])
# By name: the module needs Django's settings, and only workers load it.
app.steps["worker"].add("workers.celery.bootstep:AgentStep")
app.steps["consumer"].add("workers.celery.events:EventFlushing")
