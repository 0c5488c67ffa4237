"""A read-only database, such as a demoted primary, costs no worker its runs.

HTTP clients are asked to retry.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import pytest
from django.contrib.auth.models import User
from django.db import InternalError, close_old_connections, connection, transaction
from psycopg import sql
from rest_framework.test import APIClient

from jobs.db.transactions import releasing_connection
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import AttemptFence, Registration, RunReport
from jobs.models import Execution
from tests.integration.api.conftest import API
from tests.support.factories import make_execution, make_worker, run_on
from tests.support.own_connection import own_connection
from tests.support.waiting import wait_for
from workers.control_plane.direct import DirectControlPlane, _database_connection
from workers.errors import ControlPlaneUnavailable

pytestmark = pytest.mark.django_db(transaction=True)

DONE = RunReport(Reason.EXIT, exit_code=0)


def set_read_only(word: Literal["on", "off"]) -> None:
    """Change the default of new connections, on a separate connection."""
    with own_connection("postgres", autocommit=True) as other:
        name = sql.Identifier(connection.settings_dict["NAME"])
        other.execute(sql.SQL(f"ALTER DATABASE {{}} SET default_transaction_read_only = {word}").format(name))


def close_connections() -> None:
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]  # of our Postgres backend


def backend_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def hold(transactional_db: None) -> Iterator[AttemptFence]:
    """A run that started before every new connection became read-only."""
    hold = run_on(make_worker(), make_execution())
    set_read_only("on")
    close_connections()
    yield hold
    set_read_only("off")
    close_connections()


def test_outcome_is_reported_until_it_is_stored(hold: AttemptFence, caplog: pytest.LogCaptureFixture) -> None:
    def finish() -> str | None:
        with releasing_connection():
            moved = DirectControlPlane().finish(hold, DONE)
        return None if moved is None else moved.state

    with ThreadPoolExecutor(1) as thread:
        report = thread.submit(finish)
        wait_for(lambda: "retrying" in caplog.text, "the first try was refused")
        assert "read-only" in caplog.text
        set_read_only("off")
        assert report.result(30) == "succeeded"
    assert Execution.objects.get().state == "succeeded"


def test_renewal_and_claim_raise_control_plane_unavailable(hold: AttemptFence) -> None:
    plane, worker = DirectControlPlane(), Registration(hold.worker_id, hold.incarnation)
    with pytest.raises(ControlPlaneUnavailable, match="read-only"):
        plane.renew(worker, [])
    with pytest.raises(ControlPlaneUnavailable, match="read-only"):
        plane.claim(hold)


def test_requests_get_503_until_a_connection_is_writable(
    hold: AttemptFence,
) -> None:
    client = APIClient()
    client.force_authenticate(User.objects.get())
    to_a_reader = connection.connection
    address = f"{API}/executions/{hold.execution_id}/cancel"
    refused = client.put(address)
    assert (refused.status_code, refused["Content-Type"]) == (503, "application/problem+json")
    assert refused["Retry-After"]
    assert to_a_reader.closed
    set_read_only("off")

    def is_accepted() -> bool:
        close_old_connections()  # as the end of a request does, but for the client of tests
        return client.put(address).status_code < 300

    wait_for(is_accepted, "every connection of the pool that led to the reader is gone")


def idle_in_transaction() -> None:
    with _database_connection(), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('idle_in_transaction_session_timeout', '50ms', true), pg_backend_pid()")
        (_, pid) = cursor.fetchone()
        wait_for(lambda: not backend_exists(pid), "the server has ended the session")
        cursor.execute("SELECT 1")


def test_transaction_ended_by_the_server_means_unavailable() -> None:
    with pytest.raises(ControlPlaneUnavailable):
        idle_in_transaction()
    assert Execution.objects.count() == 0, "the next call has a connection"


def test_other_errors_are_not_converted() -> None:
    with pytest.raises(InternalError), _database_connection(), connection.cursor() as cursor:
        cursor.execute("DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'XX000'; END $$")
