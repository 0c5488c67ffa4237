"""Concurrent requests with one idempotency key: one creates, the others get 409 or the same answer."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import OperationalError, connection
from rest_framework.response import Response

from jobs.access.idempotency import IdempotentResponse, RequestKey, respond_once
from jobs.domain.errors import RequestInProgress
from jobs.models import Calendar, IdempotencyClaim, Job, StoredAnswer
from jobs.scheduling.calendars import create_calendar
from tests.integration.api.conftest import API, client_of, job_body
from tests.support.barriers import DEADLINE_SECONDS, at_once, somebody_waits
from tests.support.factories import make_job, make_user
from tests.support.own_connection import own_connection
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

CLIENTS = 8
DAY = timedelta(days=1)
ROUNDS = 3


def test_concurrent_requests_with_one_key_create_once(bucket: None) -> None:
    user = make_job().owner  # also creates the default queue
    clients = [client_of(user) for _ in range(CLIENTS)]
    for n in range(ROUNDS):
        headers, body = {"Idempotency-Key": f"round-{n}"}, job_body(name=f"round-{n}")

        def submit(client: object) -> Callable[[], tuple[int, bytes, str]]:
            def run() -> tuple[int, bytes, str]:
                answer = client.post(f"{API}/jobs", body, format="json", headers=headers)  # type: ignore[attr-defined]  # noqa: B023
                return answer.status_code, answer.content, answer.get("Retry-After", "")

            return run

        answers = at_once([submit(client) for client in clients])

        done = {content for status, content, _ in answers if status == 201}
        assert len(done) == 1, answers
        assert {(status, after) for status, _, after in answers} <= {(201, ""), (409, "1")}
        assert Job.objects.filter(name=f"round-{n}").count() == 1
    assert StoredAnswer.objects.count() == ROUNDS


def test_retry_during_slow_validation_gets_409_and_not_400(bucket: None) -> None:
    """Validation of the first request takes so long that its instant passes meanwhile."""
    user = make_job().owner
    first, again = client_of(user), client_of(user)
    at = datetime.now(UTC) + timedelta(seconds=2)
    body, headers = job_body(schedules=[{"at": at.isoformat()}]), {"Idempotency-Key": "slow"}
    with ThreadPoolExecutor(1) as thread, own_connection() as other:
        # The first request has prepared its schedules before it looks up its program.
        other.execute("LOCK TABLE jobs_artifact IN ACCESS EXCLUSIVE MODE")
        answer = thread.submit(in_own_thread, lambda: first.post(f"{API}/jobs", body, format="json", headers=headers))
        wait_for(somebody_waits, "the first is being checked")
        wait_for(lambda: datetime.now(UTC) > at, "its instant has passed")
        refused = again.post(f"{API}/jobs", body, format="json", headers=headers)
        assert (refused.status_code, refused.get("Retry-After")) == (409, "1"), refused.content
        other.rollback()
        created = answer.result(DEADLINE_SECONDS)
    assert created.status_code == 201, created.content
    replayed = again.post(f"{API}/jobs", body, format="json", headers=headers)
    assert (replayed.status_code, replayed.content) == (201, created.content)
    assert Job.objects.filter(schedules__isnull=False).count() == 1


def test_rejected_request_leaves_key_free(bucket: None) -> None:
    client, headers = client_of(make_job().owner), {"Idempotency-Key": "free"}
    wrong = job_body(schedules=[{"at": "2000-01-01T00:00:00Z"}])
    assert client.post(f"{API}/jobs", wrong, format="json", headers=headers).status_code == 400
    assert not IdempotencyClaim.objects.exists()
    assert client.post(f"{API}/jobs", job_body(), format="json", headers=headers).status_code == 201
    assert not IdempotencyClaim.objects.exists()


def test_abandoned_key_expires() -> None:
    user = make_user()
    claimed = IdempotencyClaim.objects.create(owner=user, key="k", expires_at=datetime.now(UTC) + timedelta(minutes=1))
    with pytest.raises(RequestInProgress):
        respond_once(asked(user.pk), lambda: lambda: IdempotentResponse(201, "{}"), ttl=DAY)
    IdempotencyClaim.objects.update(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    assert not respond_once(asked(user.pk), lambda: lambda: IdempotentResponse(201, "{}"), ttl=DAY).replayed
    assert not IdempotencyClaim.objects.filter(id=claimed.id).exists()


def test_request_that_lost_its_key_stores_nothing() -> None:
    user = make_user()

    def prepare() -> Callable[[], IdempotentResponse]:
        # It took so long that another request has claimed the key.
        IdempotencyClaim.objects.update(id=uuid4())
        return lambda: pytest.fail("it would be stored twice")

    with pytest.raises(RequestInProgress):
        respond_once(asked(user.pk), prepare, ttl=DAY)
    assert IdempotencyClaim.objects.count() == 1, "the other user's object"


def in_own_thread(call: Callable[[], Response]) -> Response:
    try:
        return call()
    finally:
        connection.close()


def asked(owner_id: int) -> RequestKey:
    return RequestKey(owner_id, "k", "POST /calendars", hashlib.sha256(b"").hexdigest())


def test_retry_does_not_wait_for_uncommitted_request() -> None:
    user = make_user()
    begun, refused = threading.Event(), threading.Event()

    def create() -> IdempotentResponse:
        create_calendar(owner=user, name="holidays", dates=[])
        begun.set()
        assert refused.wait(DEADLINE_SECONDS)
        return IdempotentResponse(201, "{}")

    def first() -> bool:
        return respond_once(asked(user.pk), lambda: create, ttl=DAY).replayed

    def second() -> bool:
        assert begun.wait(DEADLINE_SECONDS)
        try:
            with pytest.raises(RequestInProgress):
                respond_once(asked(user.pk), lambda: create, ttl=DAY)
        finally:
            refused.set()
        return True

    assert at_once([first, second]) == [False, True]
    assert respond_once(asked(user.pk), lambda: create, ttl=DAY).replayed
    assert Calendar.objects.count() == 1


def test_failure_after_creation_rolls_back_object_and_answer() -> None:
    user = make_user()

    def broken() -> IdempotentResponse:
        create_calendar(owner=user, name="holidays", dates=[])
        raise ConnectionError

    with pytest.raises(ConnectionError):
        respond_once(asked(user.pk), lambda: broken, ttl=DAY)
    assert not Calendar.objects.exists()
    assert not StoredAnswer.objects.exists()


def test_key_is_free_at_once_when_its_transaction_died() -> None:
    user = make_user()

    def create() -> IdempotentResponse:
        create_calendar(owner=user, name="holidays", dates=[])
        return IdempotentResponse(201, "{}")

    def dying() -> IdempotentResponse:
        create()
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        raise AssertionError("the connection has ended")

    with pytest.raises(OperationalError):
        respond_once(asked(user.pk), lambda: dying, ttl=DAY)
    connection.close()
    assert [respond_once(asked(user.pk), lambda: create, ttl=DAY).replayed for _ in range(2)] == [False, True]
    assert Calendar.objects.count() == 1
