"""What the web server runs."""

from __future__ import annotations

import gc
import os

from django.core.wsgi import get_wsgi_application

from scheduler_project.celery import app as celery_app
from scheduler_project.checks import refuse_insecure_start

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scheduler_project.settings")
refuse_insecure_start()

application = get_wsgi_application()
# The admin looks the system tasks up there; without one that is current it would find none of ours.
celery_app.set_default()

# What is loaded by now stays. Looking through all of it for garbage, in the middle of a large request, took a fifth of
# the time of a bulk submission; nearly everything that a request leaves goes without that.
gc.freeze()
gc.set_threshold(50_000, 20, 20)
