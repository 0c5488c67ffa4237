"""The ASGI application of the web server."""

from __future__ import annotations

import asyncio
import gc
import os
from importlib import import_module

import django
from django.conf import settings

from scheduler_project.celery import app as celery_app
from scheduler_project.checks import require_secure_settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scheduler_project.settings")
require_secure_settings()
django.setup(set_prefix=False)

from scheduler_project.web.bridge import Bridge, Scope, Send  # noqa: E402
from scheduler_project.web.request_bodies import Receive  # noqa: E402 - after Django's settings, which views need
from scheduler_project.web.sockets import drop_stalled_clients  # noqa: E402

bridge = Bridge(
    redis_url=settings.PUNCTUAL_REDIS_URL,
    max_body_bytes=settings.DATA_UPLOAD_MAX_MEMORY_SIZE,
    connections=settings.DATABASES["default"]["OPTIONS"]["pool"]["max_size"],
)
# The admin looks up system tasks in the current Celery application.
celery_app.set_default()

# Import the views before the first request and exclude everything loaded so far from garbage collection, which took a
# fifth of the time of a bulk submission.
import_module("scheduler_project.urls")
gc.collect()
gc.freeze()
# A list page leaves thousands of objects in reference cycles. Collecting the second generation often keeps each pause
# short; with the default thresholds, the garbage of many pages adds up to pauses of 0.1 s and more.
gc.set_threshold(20_000, 1, 50)


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await bridge(scope, receive, send)
    elif scope["type"] == "lifespan":
        await _run_lifespan(receive, send)


async def _run_lifespan(receive: Receive, send: Send) -> None:
    await receive()
    task = asyncio.create_task(drop_stalled_clients())
    await send({"type": "lifespan.startup.complete"})
    await receive()
    task.cancel()
    await send({"type": "lifespan.shutdown.complete"})
