"""Fixtures: the ASGI application without a server, and its clients."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.contrib.auth.models import User

from scheduler_project.web.bridge import Bridge
from tests.integration.web.exchange import bearer_of
from tests.support.factories import make_user

CONNECTIONS: int = settings.DATABASES["default"]["OPTIONS"]["pool"]["max_size"]


@pytest.fixture
def bridge() -> Bridge:
    return Bridge(redis_url=settings.PUNCTUAL_REDIS_URL, max_body_bytes=100_000, connections=CONNECTIONS)


@pytest.fixture
def owner() -> User:
    return make_user()


@pytest.fixture
def bearer(owner: User) -> dict[str, str]:
    return bearer_of(owner)
