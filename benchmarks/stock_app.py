"""A Celery application with nothing of ours in it, for the stock beat."""

from __future__ import annotations

from celery import Celery

app = Celery("stock")
app.config_from_object("django.conf:settings", namespace="CELERY")
