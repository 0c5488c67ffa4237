"""Concurrent edits with If-Match: exactly one succeeds, the others get 412."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobs.models import Calendar, Job
from jobs.scheduling.calendars import create_calendar
from tests.integration.api.conftest import API, client_of
from tests.support.barriers import at_once
from tests.support.factories import make_job, make_user

pytestmark = pytest.mark.django_db(transaction=True)

EDITORS = 6


@pytest.mark.parametrize("kind", ["jobs", "calendars"])
def test_only_one_of_concurrent_editors_succeeds(kind: str) -> None:
    owner = make_user()
    target = make_job(owner=owner) if kind == "jobs" else create_calendar(owner=owner, name="holidays", dates=[])
    path = f"{API}/{kind}/{target.id}"
    clients = [client_of(owner) for _ in range(EDITORS)]
    tag = clients[0].get(path)["ETag"]

    def editor(number: int) -> Callable[[], Any]:
        return lambda: clients[number].patch(
            path, {"name": f"editor {number}"}, format="json", headers={"If-Match": tag}
        )

    answers = at_once([editor(number) for number in range(EDITORS)])

    assert sorted(answer.status_code for answer in answers) == [200] + [412] * (EDITORS - 1)
    (won,) = [number for number, answer in enumerate(answers) if answer.status_code == 200]
    model = Job if kind == "jobs" else Calendar
    assert model.objects.get().name == f"editor {won}"
