"""Equal requests at the same moment: one creates, and every other is told to come back or is answered the same."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import OperationalError, connection

from jobs.errors import RequestInProgress
from jobs.models import Calendar, Job, StoredAnswer
from jobs.services.calendars import create_calendar
from jobs.services.repeating import Answer, Asked, answer_once
from tests.concurrency.connections import DEADLINE_SECONDS, at_once
from tests.factories import make_job, make_user
from tests.integration.api.conftest import API, client_of, job_body

pytestmark = pytest.mark.django_db(transaction=True)

CLIENTS = 8
DAY = timedelta(days=1)
ROUNDS = 3


def test_one_of_many_equal_requests_creates(bucket: None) -> None:
    user = make_job().owner  # and with it the default queue
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


def asked(owner_id: int) -> Asked:
    return Asked(owner_id, "k", "POST /calendars", hashlib.sha256(b"").hexdigest())


def test_who_comes_while_the_first_is_not_committed_does_not_wait() -> None:
    user = make_user()
    begun, refused = threading.Event(), threading.Event()

    def create() -> Answer:
        create_calendar(owner=user, name="holidays", dates=[])
        begun.set()
        assert refused.wait(DEADLINE_SECONDS)
        return Answer(201, "{}")

    def first() -> bool:
        return answer_once(asked(user.pk), create, kept=DAY).replayed

    def second() -> bool:
        assert begun.wait(DEADLINE_SECONDS)
        try:
            with pytest.raises(RequestInProgress):
                answer_once(asked(user.pk), create, kept=DAY)
        finally:
            refused.set()
        return True

    assert at_once([first, second]) == [False, True]
    assert answer_once(asked(user.pk), create, kept=DAY).replayed
    assert Calendar.objects.count() == 1


def test_what_breaks_after_it_created_leaves_neither_it_nor_an_answer() -> None:
    user = make_user()

    def broken() -> Answer:
        create_calendar(owner=user, name="holidays", dates=[])
        raise ConnectionError

    with pytest.raises(ConnectionError):
        answer_once(asked(user.pk), broken, kept=DAY)
    assert not Calendar.objects.exists()
    assert not StoredAnswer.objects.exists()


def test_a_key_is_free_at_once_when_whoever_had_it_died_with_all_that_it_did() -> None:
    user = make_user()

    def create() -> Answer:
        create_calendar(owner=user, name="holidays", dates=[])
        return Answer(201, "{}")

    def dying() -> Answer:
        create()
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        raise AssertionError("the connection has ended")

    with pytest.raises(OperationalError):
        answer_once(asked(user.pk), dying, kept=DAY)
    connection.close()
    assert [answer_once(asked(user.pk), create, kept=DAY).replayed for _ in range(2)] == [False, True]
    assert Calendar.objects.count() == 1
