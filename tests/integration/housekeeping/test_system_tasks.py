"""System tasks: configured in the admin, and sent by one beat at a time, also during failures."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
import redis
from django.apps import apps
from django.db import connection
from django.test import Client
from django_celery_beat.models import IntervalSchedule, PeriodicTask
from django_celery_beat.schedulers import DatabaseScheduler
from django_celery_results.models import TaskResult
from pytest_django import Settings

from jobs import tasks
from jobs.beat.scheduler import Scheduler
from jobs.db.leader_lease import SYSTEM_TASKS, acquire_leader_lease
from jobs.models import BeatLease
from scheduler_project.celery import app
from tests.support.factories import make_user
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[3]
DEADLINE = 40.0
TAKEOVER_SECONDS = 10.0
EVERY_SECOND, HOURLY = "every second", "hourly"
HOUSEKEEPING = {
    "celery.backend_cleanup",
    "jobs.advance_backfills",
    "jobs.archive_logs",
    "jobs.check_storage",
    "jobs.create_partitions",
    "jobs.index_logs",
    "jobs.prune_history",
    "jobs.prune_logs",
    "jobs.refill_due_window",
    "jobs.sweep_orphans",
}


def seed() -> None:
    """Create the system tasks as a migration does, which may run again on an upgrade."""
    importlib.import_module("jobs.migrations.0003_seed").create_system_tasks(apps, None)


@pytest.fixture
def admin(db: None) -> Client:
    client = Client()
    client.force_login(make_user(is_staff=True, is_superuser=True))
    return client


def test_admin_lists_and_runs_all_system_tasks(admin: Client) -> None:
    seed()
    page = admin.get("/admin/django_celery_beat/periodictask/")
    assert page.status_code == 200
    html = page.content.decode()
    for task in PeriodicTask.objects.all():
        assert task.name in html
    assert set(PeriodicTask.objects.filter(enabled=True).values_list("task", flat=True)) == HOUSEKEEPING
    assert set(app.tasks) >= HOUSEKEEPING
    assert "System tasks" in admin.get("/admin/").content.decode()
    assert admin.get("/admin/django_celery_results/taskresult/").status_code == 200


def test_changes_in_the_admin_survive_an_upgrade(admin: Client) -> None:
    seed()
    rarely = IntervalSchedule.objects.create(every=3, period="days")
    for number, task in enumerate(PeriodicTask.objects.order_by("id")):
        form = admin.get(f"/admin/django_celery_beat/periodictask/{task.id}/change/").context["adminform"].form
        values = {name: form.get_initial_for_field(field, name) for name, field in form.fields.items()}
        changed = {"interval": rarely.id, "enabled": "", "name": task.name if number % 2 else f"my {task.name}"}
        body = {name: value for name, value in (values | changed).items() if value not in (None, "", False)}
        answer = admin.post(f"/admin/django_celery_beat/periodictask/{task.id}/change/", body)
        assert answer.status_code == 302, answer.context["adminform"].form.errors
    edited = list(PeriodicTask.objects.order_by("id").values())
    assert {(each["interval_id"], each["enabled"]) for each in edited} == {(rarely.id, False)}

    seed()

    assert list(PeriodicTask.objects.order_by("id").values()) == edited


def test_result_is_stored_and_shown(admin: Client) -> None:
    answer = tasks.prune_history()
    app.backend.store_result("an-id", answer, "SUCCESS", request=None)
    stored = TaskResult.objects.get(task_id="an-id")
    assert json.loads(stored.result)["finished"] is True
    assert "an-id" in admin.get("/admin/django_celery_results/taskresult/").content.decode()


@pytest.fixture
def client(settings: Settings, transactional_db: None) -> Iterator[redis.Redis]:
    # The first of these tests still has the tasks of the migrations.
    PeriodicTask.objects.all().delete()
    with redis.Redis.from_url(settings.PUNCTUAL_REDIS_URL) as client:
        client.flushall()
        yield client
        client.flushall()


def system_task(name: str, *, every: int, period: str) -> PeriodicTask:
    interval = IntervalSchedule.objects.create(every=every, period=period)
    long_ago = datetime.now(UTC) - timedelta(hours=2)
    return PeriodicTask.objects.create(
        name=name, task="jobs.create_partitions", interval=interval, last_run_at=long_ago
    )


@pytest.fixture
def make_scheduler(client: redis.Redis) -> Iterator[Callable[[], Scheduler]]:
    schedulers: list[Scheduler] = []

    def make() -> Scheduler:
        schedulers.append(Scheduler(app=app))
        return schedulers[-1]

    yield make
    for scheduler in schedulers:
        scheduler.close()
        scheduler._listener.close()


def freeze_before_sending(scheduler: Scheduler, meanwhile: Callable[[], object]) -> None:
    """Run a tick that freezes between finding a task due and sending it, and call `meanwhile` then."""
    reserve = scheduler.reserve

    def freeze(entry: object) -> object:
        BeatLease.objects.update(lease_until=datetime.now(UTC) - timedelta(seconds=1))
        meanwhile()
        return reserve(entry)

    scheduler.reserve = freeze  # type: ignore[method-assign]
    scheduler._tick_system_tasks()
    scheduler.reserve = reserve  # type: ignore[method-assign]


@pytest.mark.parametrize("in_charge_again", [False, True])
def test_beat_frozen_in_mid_tick_does_not_repeat_sent_tasks(
    make_scheduler: Callable[[], Scheduler], client: redis.Redis, in_charge_again: bool
) -> None:
    frozen, other = make_scheduler(), make_scheduler()
    task = system_task(HOURLY, every=1, period="hours")
    sent_at: list[datetime] = []

    def send() -> None:
        other._tick_system_tasks()
        sent_at.append(PeriodicTask.objects.get(id=task.id).last_run_at)
        if in_charge_again:
            BeatLease.objects.update(holder=frozen._identity)

    freeze_before_sending(frozen, send)
    frozen._tick_system_tasks()
    frozen.sync()
    assert client.llen("system") == 1
    task.refresh_from_db()
    assert ([task.last_run_at], task.total_run_count) == (sent_at, 1)


def test_frozen_beat_does_not_send_tasks_of_the_new_leader(
    make_scheduler: Callable[[], Scheduler], client: redis.Redis
) -> None:
    frozen, other = make_scheduler(), make_scheduler()
    system_task(HOURLY, every=1, period="hours")
    freeze_before_sending(frozen, lambda: acquire_leader_lease(SYSTEM_TASKS, other._identity))
    frozen._tick_system_tasks()
    assert client.llen("system") == 0
    other._tick_system_tasks()
    assert client.llen("system") == 1


def test_frozen_beat_resumes_if_no_other_took_over(
    make_scheduler: Callable[[], Scheduler], client: redis.Redis
) -> None:
    frozen = make_scheduler()
    system_task(HOURLY, every=1, period="hours")
    freeze_before_sending(frozen, lambda: None)
    assert client.llen("system") == 1


def test_tasks_are_recorded_before_they_are_sent(
    make_scheduler: Callable[[], Scheduler], client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A beat that is killed right after sending a task leaves no reason to send it again."""
    task = system_task(HOURLY, every=1, period="hours")
    written: list[int] = []

    def check_and_send(scheduler: Scheduler, *arguments: object, **options: object) -> None:
        written.append(PeriodicTask.objects.get(id=task.id).total_run_count)
        raise SystemExit(9)

    monkeypatch.setattr(DatabaseScheduler, "apply_async", check_and_send)
    with pytest.raises(SystemExit):
        make_scheduler()._tick_system_tasks()
    assert written == [1]
    monkeypatch.undo()
    BeatLease.objects.all().delete()
    make_scheduler()._tick_system_tasks()
    assert client.llen("system") == 0


def test_task_disabled_meanwhile_is_not_sent(make_scheduler: Callable[[], Scheduler], client: redis.Redis) -> None:
    system_task(HOURLY, every=1, period="hours")
    freeze_before_sending(make_scheduler(), lambda: PeriodicTask.objects.update(enabled=False))
    assert client.llen("system") == 0


class Beats:
    """Two real beats, distinguished by the process ids in their messages."""

    def __init__(self, client: redis.Redis, directory: Path) -> None:
        self._client = client
        parts = urlsplit(os.environ["DATABASE_URL"])
        url = urlunsplit(parts._replace(path=f"/{connection.settings_dict['NAME']}"))
        self._logs = [directory / f"beat-{number}.log" for number in range(2)]
        self.processes = [self._start(url, log) for log in self._logs]

    def _start(self, url: str, log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "scheduler_project", "beat", "--pidfile=", "-l", "INFO"],
                cwd=ROOT,
                env=os.environ | {"DATABASE_URL": url},
                stdout=output,
                stderr=output,
            )

    def are_running(self) -> bool:
        return all("beat: Starting" in log.read_text() for log in self._logs)

    def sent(self, name: str) -> list[int]:
        """Return the process ids of the beats that sent the task, in order."""
        messages = [json.loads(each) for each in reversed(self._client.lrange("system", 0, -1))]
        return [
            int(message["headers"]["origin"].removeprefix("gen").split("@")[0])
            for message in messages
            if message["headers"]["periodic_task_name"] == name
        ]

    def end(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait(DEADLINE)


@pytest.fixture
def ticks(client: redis.Redis) -> Iterator[Callable[[], list[datetime]]]:
    """Read when each tick of the task that is due every second was recorded, in order."""

    def read() -> list[datetime]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT at FROM test_ticks WHERE name = %s ORDER BY number", [EVERY_SECOND])
            return [at for (at,) in cursor.fetchall()]

    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE test_ticks (number serial, name text, at timestamptz);"
            "CREATE FUNCTION test_note_tick() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " INSERT INTO test_ticks (name, at) VALUES (NEW.name, NEW.last_run_at); RETURN NEW; END $$;"
            "CREATE TRIGGER test_note_tick AFTER UPDATE OF last_run_at ON django_celery_beat_periodictask"
            " FOR EACH ROW EXECUTE FUNCTION test_note_tick()"
        )
    yield read
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION test_note_tick CASCADE; DROP TABLE test_ticks")


@pytest.fixture
def beats(client: redis.Redis, ticks: Callable[[], list[datetime]], tmp_path: Path) -> Iterator[Beats]:
    system_task(EVERY_SECOND, every=1, period="seconds")
    system_task(HOURLY, every=1, period="hours")
    started = Beats(client, tmp_path)
    yield started
    started.end()


def until(condition: Callable[[], object], what: str) -> None:
    wait_for(condition, what, seconds=DEADLINE)


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_another_beat_takes_over_within_seconds_without_duplicates(
    beats: Beats, ticks: Callable[[], list[datetime]], fate: signal.Signals
) -> None:
    until(beats.are_running, "both beats run")
    until(lambda: len(beats.sent(EVERY_SECOND)) >= 2 and beats.sent(HOURLY), "one of them sends the tasks")
    (first,) = set(beats.sent(EVERY_SECOND))
    (second,) = {process.pid for process in beats.processes} - {first}

    os.kill(first, fate)
    struck_at = time.monotonic()
    until(lambda: second in beats.sent(EVERY_SECOND), "the other sends them")
    assert time.monotonic() - struck_at < TAKEOVER_SECONDS

    before = len(beats.sent(EVERY_SECOND))
    if fate == signal.SIGSTOP:
        os.kill(first, signal.SIGCONT)
    until(lambda: len(beats.sent(EVERY_SECOND)) >= before + 4, "the other goes on")
    senders = beats.sent(EVERY_SECOND)
    assert set(senders[senders.index(second) :]) == {second}, "and no other"
    assert len(beats.sent(HOURLY)) == 1, "tasks of this hour are not sent again"
    moments = ticks()
    assert len(moments) >= len(senders), "every sent task was recorded"
    assert min(later - earlier for earlier, later in pairwise(moments)) >= timedelta(seconds=1), "once an interval"
