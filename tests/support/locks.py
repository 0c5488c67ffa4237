"""Row locks that another connection holds for as long as a test wants."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction
from django.db.models import Model

from tests.support.barriers import DEADLINE_SECONDS


@contextmanager
def locked(*rows: Model, no_key: bool = False) -> Iterator[None]:
    """As a forgotten psql holds them, FOR UPDATE; `no_key`: as an edit does, FOR NO KEY UPDATE."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                for row in rows:
                    type(row)._default_manager.select_for_update(no_key=no_key).get(pk=row.pk)
                held.set()
                done.wait(DEADLINE_SECONDS)
        finally:
            connection.close()

    stranger = threading.Thread(target=hold, daemon=True)
    stranger.start()
    assert held.wait(DEADLINE_SECONDS)
    try:
        yield
    finally:
        done.set()
        stranger.join(DEADLINE_SECONDS)
