"""Housekeeping is seen and adjusted in the admin, and sent by one beat at a time, whatever happens to the others."""

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
from jobs.beat import Scheduler
from jobs.models import BeatLease
from jobs.services.duties import SYSTEM_TASKS, hold_duty
from scheduler_project.celery import app
from tests.factories import make_user
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 40.0
TAKEOVER_SECONDS = 10.0
EVERY_SECOND, HOURLY = "every second", "hourly"
HOUSEKEEPING = {
    "celery.backend_cleanup",
    "jobs.advance_backfills",
    "jobs.archive_logs",
    "jobs.create_partitions",
    "jobs.index_logs",
    "jobs.prune_history",
    "jobs.prune_logs",
    "jobs.refill_due_window",
    "jobs.sweep_orphans",
}
SEEDS = {
    "0004_seed": "create_system_tasks",
    "0006_due_window_task": "create_refill",
    "0007_backfill": "create_advance",
    "0009_housekeeping": "create_housekeeping",
    "0026_log_search": "create_indexing",
    "0030_log_archive": "create_log_tasks",
}


def seed() -> None:
    """As the migrations do it, at whatever upgrade they come."""
    for module, function in SEEDS.items():
        getattr(importlib.import_module(f"jobs.migrations.{module}"), function)(apps, None)


@pytest.fixture
def admin(db: None) -> Client:
    client = Client()
    client.force_login(make_user(is_staff=True, is_superuser=True))
    return client


def test_all_housekeeping_is_listed_in_the_admin_and_can_be_run(admin: Client) -> None:
    seed()
    page = admin.get("/admin/django_celery_beat/periodictask/")
    assert page.status_code == 200
    shown = page.content.decode()
    for task in PeriodicTask.objects.all():
        assert task.name in shown
    assert set(PeriodicTask.objects.filter(enabled=True).values_list("task", flat=True)) == HOUSEKEEPING
    assert set(app.tasks) >= HOUSEKEEPING
    assert "System tasks" in admin.get("/admin/").content.decode()
    assert admin.get("/admin/django_celery_results/taskresult/").status_code == 200


def test_what_was_changed_in_the_admin_outlives_an_upgrade(admin: Client) -> None:
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

    importlib.import_module("jobs.migrations.0009_housekeeping").create_housekeeping(apps, None)

    assert list(PeriodicTask.objects.order_by("id").values()) == edited


def test_a_result_is_kept_and_shown(admin: Client) -> None:
    answer = tasks.prune_history()
    app.backend.store_result("an-id", answer, "SUCCESS", request=None)
    kept = TaskResult.objects.get(task_id="an-id")
    assert json.loads(kept.result)["finished"] is True
    assert "an-id" in admin.get("/admin/django_celery_results/taskresult/").content.decode()


@pytest.fixture
def client(settings: Settings, transactional_db: None) -> Iterator[redis.Redis]:
    # Those of the migrations are still there in the first of such tests.
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
    made: list[Scheduler] = []

    def make() -> Scheduler:
        made.append(Scheduler(app=app))
        return made[-1]

    yield make
    for scheduler in made:
        scheduler.close()
        scheduler._listener.close()


def freeze_before_sending(scheduler: Scheduler, meanwhile: Callable[[], object]) -> None:
    """A round in which it finds a task due and stands still, while others go on, before it sends it."""
    reserve = scheduler.reserve

    def stand_still(entry: object) -> object:
        BeatLease.objects.update(lease_until=datetime.now(UTC) - timedelta(seconds=1))
        meanwhile()
        return reserve(entry)

    scheduler.reserve = stand_still  # type: ignore[method-assign]
    scheduler._tick_system_tasks()
    scheduler.reserve = reserve  # type: ignore[method-assign]


@pytest.mark.parametrize("in_charge_again", [False, True])
def test_a_beat_that_was_frozen_in_the_middle_of_a_tick_sends_nothing_that_was_sent_meanwhile(
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


def test_nor_does_it_send_what_another_is_only_about_to_send(
    make_scheduler: Callable[[], Scheduler], client: redis.Redis
) -> None:
    frozen, other = make_scheduler(), make_scheduler()
    system_task(HOURLY, every=1, period="hours")
    freeze_before_sending(frozen, lambda: hold_duty(SYSTEM_TASKS, other._identity))
    frozen._tick_system_tasks()
    assert client.llen("system") == 0
    other._tick_system_tasks()
    assert client.llen("system") == 1


def test_a_beat_that_stood_still_while_nobody_took_over_goes_on(
    make_scheduler: Callable[[], Scheduler], client: redis.Redis
) -> None:
    frozen = make_scheduler()
    system_task(HOURLY, every=1, period="hours")
    freeze_before_sending(frozen, lambda: None)
    assert client.llen("system") == 1


def test_what_is_sent_was_written_down_before(
    make_scheduler: Callable[[], Scheduler], client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed right after it has sent a task, a beat leaves no reason to send it again."""
    task = system_task(HOURLY, every=1, period="hours")
    written: list[int] = []

    def look_and_send(scheduler: Scheduler, *arguments: object, **options: object) -> None:
        written.append(PeriodicTask.objects.get(id=task.id).total_run_count)
        raise SystemExit(9)

    monkeypatch.setattr(DatabaseScheduler, "apply_async", look_and_send)
    with pytest.raises(SystemExit):
        make_scheduler()._tick_system_tasks()
    assert written == [1]
    monkeypatch.undo()
    BeatLease.objects.all().delete()
    make_scheduler()._tick_system_tasks()
    assert client.llen("system") == 0


def test_a_task_that_was_disabled_since_it_was_read_is_not_sent(
    make_scheduler: Callable[[], Scheduler], client: redis.Redis
) -> None:
    system_task(HOURLY, every=1, period="hours")
    freeze_before_sending(make_scheduler(), lambda: PeriodicTask.objects.update(enabled=False))
    assert client.llen("system") == 0


class Beats:
    """Two real beats, told apart by what they send."""

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
        """The process ids of the beats that have sent the task, in order."""
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
    """When each tick of the task that is due every second was written down, in order."""

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
def test_another_beat_takes_the_system_tasks_over_in_seconds_and_sends_none_twice(
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
    assert set(senders[senders.index(second) :]) == {second}, "and nobody else"
    assert len(beats.sent(HOURLY)) == 1, "what was sent in this hour is not sent again"
    moments = ticks()
    assert len(moments) >= len(senders), "nothing was sent that was not written down"
    assert min(later - earlier for earlier, later in pairwise(moments)) >= timedelta(seconds=1), "once an interval"
