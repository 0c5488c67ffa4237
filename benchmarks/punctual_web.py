"""Our web server as a measured process, and a client of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx

from benchmarks.laboratory import Laboratory
from benchmarks.measured_process import MeasuredProcess
from punctual_client.client import Client
from scheduler_project.localstack.ports import iter_free_ports

START_SECONDS = 30
TOKEN = "pun_" + "b" * 40


@contextmanager
def punctual_web(room: Laboratory, environment: Mapping[str, str] | None = None) -> Iterator[Client]:
    """As the local stack runs it; the client's token belongs to a user of its own."""
    from django.contrib.auth.models import User

    from jobs.access.tokens import store_token

    owner, is_new = User.objects.get_or_create(username="reader")
    if is_new:
        store_token(owner=owner, name="benchmark", secret=TOKEN)
    port = next(iter_free_ports())
    argv = (sys.executable, "-m", "scheduler_project.web", "--port", str(port))
    settings = {"ALLOWED_HOSTS": "127.0.0.1", "PUNCTUAL_HTTPS": "false", "PUNCTUAL_REQUESTS_PER_MINUTE": "0"}
    with MeasuredProcess("web", argv, room.directory, {**settings, **(environment or {})}) as process:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + START_SECONDS
        while not _is_up(url):
            if time.monotonic() > deadline or not process.is_running:
                raise SystemExit(f"Web did not start:\n{process.log[-2000:]}")
            time.sleep(0.1)
        with Client(url, TOKEN) as client:
            yield client


def _is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=5, trust_env=False).is_success
    except httpx.TransportError:
        return False
