"""How long a page of each kind of list takes among a million jobs, five million executions, and in how many statements.

`.venv/bin/python -m benchmarks.listing [--jobs 1000000] [--executions 5000000]`
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING

from benchmarks.laboratory import laboratory, say
from benchmarks.verdict import Target, conclude, machine, percentile

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from rest_framework.test import APIClient

    from benchmarks.catalogue import Catalogue

JOBS, EXECUTIONS = 1_000_000, 5_000_000
ROUNDS = 100
MAX_P99_MS = 100.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--executions", type=int, default=EXECUTIONS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    result: dict[str, object] = {
        "benchmark": "listing",
        "through": "the view, in this process",
        "jobs": options.jobs,
        "executions": options.executions,
        **machine(),
    }
    with laboratory():
        from benchmarks.catalogue import indexed_afterwards, make_catalogue

        say("rows")
        with indexed_afterwards():
            catalogue = make_catalogue(options.jobs, options.executions)
            say("indexes")
        pages = measure(catalogue, options.rounds)
    result["seconds"] = round(time.process_time())
    result["pages"] = {kind: page for kind, (_, page) in pages.items()}
    every = [each for times, _ in pages.values() for each in times]
    return conclude(
        result,
        {
            "p50_ms": Target(percentile(every, 0.5)),
            "p99_ms": Target(percentile(every, 0.99), at_most=MAX_P99_MS),
            "worst_p99_of_a_kind_ms": Target(
                max(percentile(times, 0.99) for times, _ in pages.values()), at_most=MAX_P99_MS
            ),
        },
    )


def measure(catalogue: Catalogue, rounds: int) -> dict[str, tuple[list[float], dict[str, float]]]:
    from django.contrib.auth.models import User

    import_module("scheduler_project.wsgi")  # what the web server loads, and does once
    measured = {}
    for user in (User.objects.create(username="staff", is_staff=True), catalogue.many, catalogue.some, catalogue.few):
        client = _client(user)
        for address in _staff_lists(catalogue) if user.is_staff else OWN_LISTS:
            kind = f"{user.username}: {address}"
            measured[kind] = _measure(client, address, rounds)
            say(f"{kind} {measured[kind][1]}")
    return measured


def _client(user: User) -> APIClient:
    from django.conf import settings
    from rest_framework.test import APIClient

    from jobs.services.tokens import new_secret, store_token

    settings.ALLOWED_HOSTS, settings.PUNCTUAL_REQUESTS_PER_MINUTE = ["testserver"], 0
    secret = new_secret()
    store_token(owner=user, name="benchmark", secret=secret)
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client


OWN_LISTS = [
    "jobs",
    "jobs?status=failed",
    "jobs?status=succeeded",
    "jobs?search=report",
    "jobs?search=zebra",
    "jobs?ordering=name",
    "jobs?ordering=next_fire",
    "jobs?queue=rare",
    "executions",
    "executions?ordering=created",
    "executions?status=failed",
    "executions?status=running",
    "executions?queue=rare",
    "dead-letters",
    "artifacts",
    "calendars",
]


def _staff_lists(catalogue: Catalogue) -> list[str]:
    from jobs.querysets.job_status import JobStatus
    from jobs.states import State

    week_ago = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 7 * 86400))
    ten_days_ago = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 10 * 86400))
    worker = catalogue.worker_id
    return [
        "jobs",
        *(f"jobs?status={status}" for status in JobStatus),
        *(f"jobs?ordering={order}" for order in ("created", "name", "-name", "next_fire", "-next_fire")),
        *(f"jobs?owner={owner}" for owner in ("many", "some", "few", "nobody")),
        *(f"jobs?search={part}" for part in ("report", "zebra", "nowhere", "12345", "e", "12", "y r", "ж")),
        "jobs?search=zebra&ordering=name",
        "jobs?search=report&ordering=next_fire",
        "jobs?search=zebra&status=failed",
        "jobs?queue=rare",
        "jobs?queue=rare&priority=9",
        "jobs?priority=9",
        "jobs?priority=9&status=failed",
        "jobs?owner=few&ordering=next_fire",
        "jobs?ordering=name&status=failed",
        "jobs?deleted=true",
        "executions",
        *(f"executions?status={state}" for state in State),
        *(f"executions?ordering={order}" for order in ("created", "ended_at", "-ended_at")),
        *(f"executions?owner={owner}" for owner in ("many", "some", "few", "nobody")),
        "executions?owner=few&status=failed",
        "executions?queue=rare",
        "executions?queue=rare&status=failed",
        f"executions?worker_id={worker}",
        f"executions?worker_id={worker}&status=failed",
        f"executions?scheduled_to={week_ago}",
        f"executions?scheduled_from={ten_days_ago}&scheduled_to={week_ago}&status=failed",
        f"executions?ended_from={week_ago}",
        f"executions?ended_from={ten_days_ago}&ended_to={week_ago}",
        f"executions?ended_to={week_ago}&ordering=-ended_at",
        "dead-letters",
        "workers",
        "queues",
    ]


def _measure(client: APIClient, address: str, rounds: int) -> tuple[list[float], dict[str, float]]:
    """The first page and those after it, so that not every round finds its rows in memory."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    times, rows, pages, short = [], 0, 0, 0
    first = following = f"/api/v1/{address}"
    for _ in range(rounds):
        began = time.perf_counter()
        response = client.get(following)
        times.append((time.perf_counter() - began) * 1000)
        assert response.status_code == 200, response.content
        page = response.json()
        rows += len(page["results"])
        pages += 1
        short += page["next"] is not None and len(page["results"]) < 50
        following = page["next"] or first
    with CaptureQueriesContext(connection) as queries:
        client.get(first)
    return times, {
        "p50_ms": round(percentile(times, 0.5), 1),
        "p99_ms": round(percentile(times, 0.99), 1),
        "statements": len(queries),
        "rows_a_page": round(rows / pages, 1),
        "short_pages": short,
    }


if __name__ == "__main__":
    sys.exit(main())
