"""Thousands of registered workers that run nothing, stored at once, and the one token that admits them all."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from django.contrib.auth.models import User

from benchmarks.laboratory import say
from jobs.access.tokens import store_token
from jobs.models import TokenScope, Worker


def register_fleet(count: int, *, secret: str, lease: timedelta, **fields: Any) -> Sequence[Worker]:
    """Store workers of the same size, with these other fields."""
    say(f"registering {count:,} workers")
    owner = User.objects.create(username="fleet", is_staff=True)
    token = store_token(owner=owner, name="fleet", secret=secret, scope=TokenScope.WORKER, max_workers=count)
    now = datetime.now(UTC)
    return Worker.objects.bulk_create(
        Worker(
            name=f"w{number}",
            host=f"host-{number}",
            instance=uuid4(),
            incarnation=1,
            status="online",
            lease_until=now + lease,
            slots=8,
            cpu=2.0,
            memory_mb=4096,
            disk_mb=8192,
            registered_at=now,
            token=token,
            **fields,
        )
        for number in range(count)
    )
