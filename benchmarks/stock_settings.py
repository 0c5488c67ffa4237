"""Django's settings for stock django-celery-beat: the defaults, and a connection that it may keep."""

from __future__ import annotations

import os

import dj_database_url

INSTALLED_APPS = ["django.contrib.contenttypes", "django_celery_beat"]
DATABASES = {"default": {**dj_database_url.parse(os.environ["DATABASE_URL"]), "CONN_MAX_AGE": None}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
CELERY_BROKER_URL = os.environ["REDIS_URL"]
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"
