"""Filtered and ordered lists: pages equal the whole list, however few rows a page may scan."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Min
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from jobs.api.framework.cursors import seal_cursor
from jobs.db import keyset
from jobs.db.keyset import Listing, Position, read_keyset_page
from jobs.definitions.job_list import JobFilters, list_jobs
from jobs.definitions.job_status import JobStatus, with_status
from jobs.domain.states import State
from jobs.execution import execution_list
from jobs.execution.execution_list import ExecutionFilters, list_executions
from jobs.models import Execution, Job, Queue
from tests.integration.api.conftest import API
from tests.support.factories import claim_on, make_execution, make_job, make_schedule, make_user, make_worker, place_on

NOW = datetime.now(UTC)
ENDINGS = [State.SUCCEEDED, State.FAILED, State.TIMED_OUT, State.CANCELLED, State.MISSED, State.SKIPPED]


@pytest.fixture
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set limits so low that every strategy is used and most pages end early."""
    monkeypatch.setattr(keyset, "STEP_ROWS", 4)
    monkeypatch.setattr(keyset, "PAGE_BUDGET_SECONDS", 0)
    monkeypatch.setattr(execution_list, "MAX_JOBS_PER_PATH", 8)


@pytest.fixture
def population(owner: User) -> None:
    """Create jobs of two owners: every status, repeated names, two queues, and executions of every outcome."""
    other, worker = make_user(), make_worker()
    queues = [Queue.objects.create(name="slow"), *Queue.objects.filter(name="default"), Queue.objects.create(name="x")]
    for number in range(32):
        job = make_job(
            owner=other if number % 5 == 0 else owner,
            name=f"Report {number % 7}",
            priority=number % 4,
            queue=queues[number % 3],
        )
        for place, ending in enumerate(ENDINGS[: number % 7]):
            _end(make_execution(job=job), ending, place, worker.worker_id)
        match number % 9:
            case 0:
                make_schedule(job=job, next_instant=NOW + timedelta(minutes=number % 6))
                make_schedule(job=job, next_instant=NOW + timedelta(minutes=number % 4))
            case 1:
                make_execution(job=job)
            case 2:
                claim_on(worker, make_execution(job=job))
            case 3:
                place_on(worker, make_execution(job=job))
            case 4:
                Job.objects.filter(id=job.id).update(state="paused", paused_at=NOW)
            case 5:
                Job.objects.filter(id=job.id).update(state="cancelled", deleted_at=NOW if number % 2 else None)


def _end(execution: Execution, ending: State, place: int, worker_id: Any) -> None:
    ran = ending not in (State.MISSED, State.SKIPPED)
    # Some have old instants, some ended long after theirs.
    late = timedelta(days=9) if ending is State.FAILED else timedelta(0)
    long = timedelta(days=9) if ending is State.TIMED_OUT else timedelta(0)
    Execution.objects.filter(id=execution.id).update(
        state=ending,
        scheduled_for=NOW + timedelta(seconds=place) - late,
        ended_at=NOW + timedelta(seconds=place) + long,
        worker_id=worker_id if ran else None,
        dead_letter="open" if ending in (State.FAILED, State.TIMED_OUT) else None,
    )
    if ran:
        execution.attempts.create(number=1, worker_id=worker_id, incarnation=1, placed_at=NOW, claimed_at=NOW)


def walk(listing: Listing) -> list[UUID]:
    found: list[UUID] = []
    position: Position | None = None
    for _ in range(1000):
        page = read_keyset_page(listing, position, 3)
        assert len(page.ids) <= 3
        found += page.ids
        if page.end is None:
            return found
        position = page.end
    raise AssertionError("the list has no end")


def ids(client: APIClient, address: str) -> list[str]:
    return [row["id"] for row in client.get(f"{API}/{address}").json()["results"]]


JOB_FILTERS: list[dict[str, Any]] = [
    {},
    *({"status": status.value} for status in JobStatus),
    {"queue": "slow"},
    {"queue": "nowhere"},
    {"priority": 3},
    {"search": "PORT 3"},
    {"search": "t"},
    {"name": "Report 3"},
    {"name": "report 3"},
    {"status": "waiting", "queue": "slow"},
    {"status": "failed", "priority": 2, "search": "report"},
    {"deleted": True},
    {"deleted": True, "name": "Report 5"},
]
JOB_COLUMNS = {
    "status": "status",
    "queue": "current_version__queue__name",
    "priority": "current_version__priority",
    "search": "name__icontains",
    "name": "name",
}
JOB_KEYS = {"created": "id", "name": "name", "next_fire": "fires_at"}


@pytest.mark.usefixtures("population", "small_budget")
@pytest.mark.parametrize("ordering", ["-created", "created", "name", "-next_fire"])
def test_job_pages_equal_whole_list(owner: User, ordering: str) -> None:
    key, minus = JOB_KEYS[ordering.lstrip("-")], "-" * ordering.startswith("-")
    staff, seen = make_user(is_staff=True), 0
    for filters in JOB_FILTERS:
        deleted = "deleted" in filters
        if deleted and key != "id":
            continue
        rows = with_status(Job.objects.filter(deleted_at__isnull=not deleted))
        rows = rows.filter(**{JOB_COLUMNS[name]: value for name, value in filters.items() if name in JOB_COLUMNS})
        if key == "fires_at":
            rows = rows.annotate(fires_at=Min("schedules__next_fire_at")).filter(fires_at__isnull=False)
        rows = rows.order_by(minus + key, minus + "id")
        for asking, wanted in ((staff, rows), (owner, rows.filter(owner=owner))):
            expected = [job.id for job in wanted]
            assert walk(list_jobs(asking, JobFilters(**filters), ordering)) == expected, (filters, asking)
            seen += len(expected)
    assert seen > 10


@pytest.mark.usefixtures("population", "small_budget")
@pytest.mark.parametrize("ordering", ["-created", "created", "-ended_at"])
def test_execution_pages_equal_whole_list(owner: User, ordering: str) -> None:
    key, minus = {"created": "id"}.get(ordering.lstrip("-"), "ended_at"), "-" * ordering.startswith("-")
    staff = make_user(is_staff=True)
    worker_id = Execution.objects.filter(state="queued").values_list("worker_id", flat=True)[0]
    job_id = Execution.objects.filter(state="skipped", job__owner=owner).values_list("job_id", flat=True)[0]
    from_at, to_at = NOW + timedelta(seconds=1), NOW + timedelta(seconds=4)
    long_ago, much_later = NOW - timedelta(days=3), NOW + timedelta(days=3)
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        *(({"status": state.value}, {"state": state.value}) for state in State),
        ({"worker_id": worker_id}, {"worker_id": worker_id}),
        ({"worker_id": worker_id, "status": "failed"}, {"worker_id": worker_id, "state": "failed"}),
        ({"job_id": job_id}, {"job_id": job_id}),
        ({"job_id": job_id, "status": "missed"}, {"job_id": job_id, "state": "missed"}),
        ({"ended_from": from_at, "ended_to": to_at}, {"ended_at__gte": from_at, "ended_at__lt": to_at}),
        (
            {"scheduled_from": from_at, "scheduled_to": to_at},
            {"scheduled_for__gte": from_at, "scheduled_for__lt": to_at},
        ),
        ({"scheduled_to": long_ago}, {"scheduled_for__lt": long_ago}),
        ({"ended_from": much_later}, {"ended_at__gte": much_later}),
        ({"dead_letter": "open"}, {"dead_letter": "open"}),
        ({"queue": "slow"}, {"queue__name": "slow"}),
        ({"queue": "nowhere"}, {"queue__name": "nowhere"}),
        ({"owner": owner.username}, {"job__owner": owner}),
        ({"owner": owner.username, "queue": "x"}, {"job__owner": owner, "queue__name": "x"}),
    ]
    for filters, columns in cases:
        rows = Execution.objects.filter(**columns).order_by(minus + key, minus + "id")
        if key == "ended_at":
            rows = rows.filter(ended_at__isnull=False)
        for asking, wanted in ((staff, rows), (owner, rows.filter(job__owner=owner))):
            expected = [execution.id for execution in wanted]
            assert walk(list_executions(asking, ExecutionFilters(**filters), ordering)) == expected, (filters, asking)


@pytest.mark.parametrize("ordering", ["ended_at", "-ended_at"])
def test_few_executions_are_found_by_end_among_all_owners(
    monkeypatch: pytest.MonkeyPatch, owner: User, client: APIClient, ordering: str
) -> None:
    """Rows of others lie before and after them, more than a page scans."""
    monkeypatch.setattr(keyset, "STEP_ROWS", 10)
    monkeypatch.setattr(keyset, "PAGE_BUDGET_SECONDS", 0)
    job, others = make_job(owner=owner), make_job()
    own = [make_execution(job=job if 100 <= number < 120 else others) for number in range(220)][100:120]
    for number, execution in enumerate(Execution.objects.order_by("id")):
        Execution.objects.filter(id=execution.id).update(state="skipped", ended_at=NOW + timedelta(seconds=number))
    expected = [str(each.id) for each in own][:: -1 if ordering.startswith("-") else 1]
    for more in ("", f"&job_id={job.id}", f"&owner={owner.username}"):
        page = client.get(f"{API}/executions?limit=15&ordering={ordering}{more}").json()
        assert [row["id"] for row in page["results"]] == expected[:15], more
        assert [row["id"] for row in client.get(page["next"]).json()["results"]] == expected[15:], more


def test_executions_of_deleted_jobs_stay_listed(owner: User, client: APIClient) -> None:
    kept, gone, others = make_job(owner=owner), make_job(owner=owner), make_job()
    own = [make_execution(job=job) for job in (kept, gone)]
    make_execution(job=others)
    Job.objects.filter(id__in=[gone.id, others.id]).update(state="cancelled", deleted_at=NOW)
    assert ids(client, "executions?ordering=created") == [str(each.id) for each in own]


def test_page_scans_further_when_few_rows_match(
    monkeypatch: pytest.MonkeyPatch, owner: User, client: APIClient
) -> None:
    """For an owner with many jobs, few queries scan more rows each instead of one query per job."""
    monkeypatch.setattr(execution_list, "MAX_JOBS_PER_PATH", 1)
    monkeypatch.setattr(keyset, "PAGE_BUDGET_SECONDS", 60)
    own, others = [make_job(owner=owner) for _ in range(2)], make_job()
    for number in range(400):
        make_execution(job=own[number % 2] if number % 40 == 0 else others)
    with CaptureQueriesContext(connection) as queries:
        page = client.get(f"{API}/executions?limit=9").json()
    assert (len(page["results"]), page["next"] is not None) == (9, True)
    assert sum("UNION ALL" in each["sql"] for each in queries) <= 5


def test_next_page_does_not_reveal_jobs_of_others(small_budget: None, owner: User, stranger: APIClient) -> None:
    job = make_job(owner=owner)
    for _ in range(9):
        make_execution(job=job)
    for more in ("", "&status=failed", "&status=ready", "&ordering=ended_at"):
        page = stranger.get(f"{API}/executions?job_id={job.id}{more}").json()
        assert page == {"results": [], "next": None}, more


@pytest.mark.parametrize("ordering", [*execution_list.ORDERS])
def test_user_without_jobs_gets_one_page(
    small_budget: None, population: None, stranger: APIClient, ordering: str
) -> None:
    page = stranger.get(f"{API}/executions?limit=1&ordering={ordering}").json()
    assert page == {"results": [], "next": None}


@pytest.mark.parametrize("ordering", [*execution_list.ORDERS])
def test_next_page_does_not_reveal_users(
    small_budget: None, population: None, owner: User, stranger: APIClient, ordering: str
) -> None:
    for extra in ("", "&status=failed", "&queue=default"):
        path = f"{API}/executions?limit=1&ordering={ordering}{extra}&owner="
        known, unknown = (stranger.get(path + name).json() for name in (owner.get_username(), "nobody"))
        assert known == unknown == {"results": [], "next": None}


def test_owner_filter_finds_others_for_staff_only(owner: User, client: APIClient, stranger: APIClient) -> None:
    job = make_job(owner=owner)
    assert ids(client, f"jobs?owner={owner.username}") == [str(job.id)]
    assert ids(stranger, f"jobs?owner={owner.username}") == []
    assert ids(client, "jobs?owner=nobody") == []


def test_inserted_and_deleted_rows_do_not_shift_pages(owner: User, client: APIClient) -> None:
    kept = [make_job(owner=owner, name=name) for name in "bdfhk"]
    first = client.get(f"{API}/jobs?limit=3&ordering=name").json()
    for name in "ace":
        make_job(owner=owner, name=name)
    Job.objects.filter(id=kept[0].id).update(state="cancelled", deleted_at=NOW)
    second = client.get(first["next"]).json()
    assert [row["name"] for row in first["results"] + second["results"]] == list("bdfhk")


def test_cursor_does_not_reveal_hidden_rows(small_budget: None, client: APIClient, owner: User) -> None:
    job, own = make_job(), [make_execution(job=make_job(owner=owner)) for _ in range(9)]
    strangers = [make_execution(job=job) for _ in range(20)]
    page = client.get(f"{API}/executions?limit=1").json()
    first = page["next"]
    raw = base64.urlsafe_b64decode(parse_qs(urlsplit(first).query)["cursor"][0] + "==")
    assert not page["results"]
    assert not any(str(each.id).encode() in raw or each.id.bytes in raw for each in strangers)
    # The cursor is valid, but only unchanged.
    while not page["results"]:
        page = client.get(page["next"]).json()
    assert page["results"][0]["id"] == str(own[-1].id)
    at = first.index("cursor=") + 12
    changed = first[:at] + ("A" if first[at] != "A" else "B") + first[at + 1 :]
    assert client.get(changed).json()["errors"][0]["field"] == "cursor"


@pytest.mark.parametrize("instant", ["2026-01-01T00:00:00+23:59", "0001-01-01T00:00:00+23:59"])
def test_cursor_with_any_utc_offset_is_handled(client: APIClient, instant: str) -> None:
    for path, ordering in (("executions", "-ended_at"), ("jobs", "next_fire")):
        response = client.get(f"{API}/{path}?ordering={ordering}&cursor={_cursor(ordering, instant, ID, of=path)}")
        assert response.status_code == (400 if instant.startswith("0001") else 200), response.content


def _cursor(*words: object, of: str = "jobs") -> str:
    return seal_cursor([f"{API}/{of}", *words])


ID = "01a1e63d-c175-76a5-986c-74687ed813a6"
PLAIN = base64.urlsafe_b64encode(f'["name", "a", "{ID}"]'.encode()).decode()


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("ordering=size", "ordering"),
        ("ordering=name&deleted=true", "ordering"),
        ("limit=1&limit=2", "limit"),
        ("status=failed&status=paused", "status"),
        (f"cursor={_cursor('name', 'a', ID)}", "cursor"),
        (f"ordering=name&cursor={_cursor('name', ID)}", "cursor"),
        (f"ordering=name&cursor={_cursor('name', 7, ID)}", "cursor"),
        (f"ordering=name&cursor={_cursor('name', 'a' + chr(0), ID)}", "cursor"),
        (f"ordering=name&cursor={_cursor('name', chr(0xD800), ID)}", "cursor"),
        (f"ordering=next_fire&cursor={_cursor('next_fire', '2030-01-01', ID)}", "cursor"),
        (f"cursor={_cursor('-created', 'no id')}", "cursor"),
        (f"cursor={_cursor('-created', ID, of='executions')}", "cursor"),
        (f"cursor={_cursor('-created')}", "cursor"),
        (f"ordering=name&cursor={PLAIN}", "cursor"),
        ("cursor=W1tbW1s", "cursor"),
        ("cursor=MQ", "cursor"),
    ],
)
def test_invalid_list_parameter_is_named(client: APIClient, query: str, field: str) -> None:
    response = client.get(f"{API}/jobs?{query}")

    assert response.status_code == 400, response.content
    assert response.json()["errors"][0]["field"] == field


@pytest.mark.parametrize(
    "query", ["jobs?status=", "executions?worker_id=", "audit?to=", "secrets?name=", "workers?status="]
)
def test_empty_filter_is_rejected(client: APIClient, query: str) -> None:
    response = client.get(f"{API}/{query}")
    assert response.status_code == 400
    assert response.json()["errors"][0]["field"] == query.partition("?")[2].rstrip("=")
