"""What the web server runs."""

from __future__ import annotations

import gc
import os
from importlib import import_module

from django.core.wsgi import get_wsgi_application

from scheduler_project.celery import app as celery_app
from scheduler_project.checks import refuse_insecure_start

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scheduler_project.settings")
refuse_insecure_start()

application = get_wsgi_application()
# The admin looks the system tasks up there; without one that is current it would find none of ours.
celery_app.set_default()

# What is loaded by now stays: looking through all of it for garbage, in the middle of a large request, took a fifth of
# the time of a bulk submission. The views come with the addresses, which else are read at the first request.
import_module("scheduler_project.urls")
gc.collect()
gc.freeze()
# A page of a list leaves thousands of objects in circles. Seldom looked for, they are those of many pages, and somebody
# waits for a tenth of a second and more: the second generation goes with every other look at the first.
gc.set_threshold(20_000, 1, 50)
