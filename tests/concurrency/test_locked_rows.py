"""Who holds an execution's row, however long, stops neither the renewals of its worker nor other placements."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.db import connection, transaction

from jobs.models import Execution, Worker
from jobs.services.leases import renew_lease
from jobs.services.placement import place_ready_executions
from tests.concurrency.connections import DEADLINE_SECONDS
from tests.factories import make_execution, make_worker, run_on

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def locked(execution_id: UUID) -> Iterator[None]:
    """By somebody else, who is stuck."""
    holds, done = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                Execution.objects.select_for_update().get(id=execution_id)
                holds.set()
                done.wait(DEADLINE_SECONDS)
        finally:
            connection.close()

    stranger = threading.Thread(target=hold, daemon=True)
    stranger.start()
    assert holds.wait(DEADLINE_SECONDS)
    try:
        yield
    finally:
        done.set()
        stranger.join(DEADLINE_SECONDS)


def test_a_worker_renews_while_somebody_holds_what_it_runs() -> None:
    worker, listed, unlisted = make_worker(), make_execution(), make_execution()
    run_on(worker, listed)
    run_on(worker, unlisted)
    Execution.objects.update(claimed_at=datetime.now(UTC) - timedelta(hours=1))
    before = Worker.objects.get().lease_until
    with locked(listed.id), locked(unlisted.id):
        assert renew_lease(worker, [(listed.id, 1)]) == []
        assert Worker.objects.get().lease_until > before
    renew_lease(worker, [(listed.id, 1)])
    assert Execution.objects.get(id=unlisted.id).state == "ready", "what nobody runs is lost as soon as it can be"


def test_what_somebody_holds_keeps_nothing_else_from_its_place() -> None:
    make_worker()
    held, other = make_execution(), make_execution()
    with locked(held.id):
        assert [p.execution_id for p in place_ready_executions().publications] == [other.id]
    assert [p.execution_id for p in place_ready_executions().publications] == [held.id]
