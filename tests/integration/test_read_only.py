"""A database that takes no writes for a while, as a primary that was demoted, costs no worker its runs.

Whoever asks over HTTP is told to try again.
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

from jobs.models import Execution
from jobs.protocol import Hold, Registration, Report
from jobs.services.database import pooled
from jobs.states import Reason
from tests.factories import make_execution, make_worker, run_on
from tests.integration.api.conftest import API
from tests.own_connection import own_connection
from tests.waiting import wait_for
from workers.direct_control_plane import DirectControlPlane, _connected
from workers.errors import ControlPlaneUnavailable

pytestmark = pytest.mark.django_db(transaction=True)

DONE = Report(Reason.EXIT, exit_code=0)


def take_writes(word: Literal["on", "off"]) -> None:
    """For connections that are made from now on; said on one that belongs to nobody else."""
    with own_connection("postgres", autocommit=True) as other:
        name = sql.Identifier(connection.settings_dict["NAME"])
        other.execute(sql.SQL(f"ALTER DATABASE {{}} SET default_transaction_read_only = {word}").format(name))


def forget_connections() -> None:
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]  # of the backend for Postgres


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def hold(transactional_db: None) -> Iterator[Hold]:
    """Of a run that began before; since then every connection is one to a database that only reads."""
    hold = run_on(make_worker(), make_execution())
    take_writes("on")
    forget_connections()
    yield hold
    take_writes("off")
    forget_connections()


def test_what_a_run_came_to_is_told_again_until_it_is_taken(hold: Hold, caplog: pytest.LogCaptureFixture) -> None:
    def finish() -> str | None:
        with pooled():
            moved = DirectControlPlane().finish(hold, DONE)
        return None if moved is None else moved.state

    with ThreadPoolExecutor(1) as thread:
        told = thread.submit(finish)
        wait_for(lambda: "trying again" in caplog.text, "the first try was refused")
        assert "read-only" in caplog.text
        take_writes("off")
        assert told.result(30) == "succeeded"
    assert Execution.objects.get().state == "succeeded"


def test_a_renewal_and_a_claim_say_that_the_control_plane_is_away(hold: Hold) -> None:
    plane, worker = DirectControlPlane(), Registration(hold.worker_id, hold.incarnation)
    with pytest.raises(ControlPlaneUnavailable, match="read-only"):
        plane.renew(worker, [])
    with pytest.raises(ControlPlaneUnavailable, match="read-only"):
        plane.claim(hold)


def test_a_request_is_answered_that_it_is_away_until_another_connection_leads_to_one_that_writes(hold: Hold) -> None:
    client = APIClient()
    client.force_authenticate(User.objects.get())
    to_a_reader = connection.connection
    address = f"{API}/executions/{hold.execution_id}/cancel"
    refused = client.put(address)
    assert (refused.status_code, refused["Content-Type"]) == (503, "application/problem+json")
    assert refused["Retry-After"]
    assert to_a_reader.closed
    take_writes("off")

    def is_taken() -> bool:
        close_old_connections()  # as the end of a request does, but for the client of tests
        return client.put(address).status_code < 300

    wait_for(is_taken, "every connection of the pool that led to the reader is gone")


def overstay() -> None:
    with _connected(), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('idle_in_transaction_session_timeout', '50ms', true), pg_backend_pid()")
        (_, pid) = cursor.fetchone()
        wait_for(lambda: not is_there(pid), "the server has ended the session")
        cursor.execute("SELECT 1")


def test_a_transaction_that_the_server_ended_is_a_control_plane_that_is_away() -> None:
    with pytest.raises(ControlPlaneUnavailable):
        overstay()
    assert Execution.objects.count() == 0, "the next call has a connection"


def test_another_mistake_stays_one() -> None:
    with pytest.raises(InternalError), _connected(), connection.cursor() as cursor:
        cursor.execute("DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'XX000'; END $$")
