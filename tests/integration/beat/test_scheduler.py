"""Beat's scheduler with a real Celery application: its stages, its sleep, and the system tasks that one beat sends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
import redis
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django_celery_beat.models import IntervalSchedule, PeriodicTask
from pytest_django import Settings

from jobs.beat.firing import RECHECK_SECONDS
from jobs.beat.scheduler import Scheduler
from jobs.beat.stage import run_safely
from jobs.db import due_window, sql
from jobs.db.wakeups import BestEffortRedis
from jobs.domain import limits
from jobs.domain.messages import worker_queue
from jobs.models import BeatLease, Execution, Schedule, Worker
from jobs.tasks import refill_due_window
from scheduler_project.celery import app
from tests.support.factories import make_execution, make_job, make_schedule, make_worker, run_on, stamp_reaping
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

DEADLINE = 10.0
MAX_SLEEP = 0.4


@pytest.fixture
def client(settings: Settings) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(settings.PUNCTUAL_REDIS_URL) as client:
        client.flushall()
        yield client
        client.flushall()


@pytest.fixture
def make_scheduler(
    settings: Settings, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Scheduler]]:
    settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = MAX_SLEEP
    # A long timeout: a busy machine may take longer than 50 ms, which rightly invalidates the window.
    patient_redis = BestEffortRedis(settings.PUNCTUAL_REDIS_URL, timeout_seconds=DEADLINE)
    monkeypatch.setattr(due_window.due_window(), "_redis", patient_redis)
    made: list[Scheduler] = []

    def make() -> Scheduler:
        made.append(Scheduler(app=app))
        made[-1].window._redis = patient_redis
        return made[-1]

    yield make
    for scheduler in made:
        scheduler.close()
        scheduler._listener.close()
    patient_redis.close()


@pytest.fixture
def scheduler(make_scheduler: Callable[[], Scheduler]) -> Scheduler:
    return make_scheduler()


def until(condition: Callable[[], object]) -> None:
    wait_for(condition, "what the test waits for", seconds=DEADLINE)


def past(seconds: float = 1) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def state(execution_id: UUID) -> str:
    return Execution.objects.get(id=execution_id).state


def test_tick_fires_places_and_publishes(scheduler: Scheduler, client: redis.Redis) -> None:
    worker = make_worker()
    make_schedule(starts_at=past(), next_instant=past(), expression="3600")
    assert scheduler.tick() == 0, "it has slept"
    until(lambda: client.llen(worker_queue(worker.worker_id)) == 1)
    assert Execution.objects.get().state == "queued"


def test_tick_wakes_due_retries(scheduler: Scheduler) -> None:
    execution = make_execution()
    Execution.objects.update(state="backing_off", retry_at=past())
    scheduler.tick()
    assert state(execution.id) == "ready"


def test_tick_reaps(scheduler: Scheduler) -> None:
    execution = make_execution()
    run_on(make_worker(), execution)
    Worker.objects.update(lease_until=past())
    stamp_reaping()
    scheduler.tick()
    until(lambda: Worker.objects.get().status == "lost")
    assert state(execution.id) == "ready"


def test_tick_expires_overdue_executions(scheduler: Scheduler) -> None:
    execution = make_execution()
    Execution.objects.update(deadline_at=past())
    scheduler.tick()
    until(lambda: state(execution.id) == "timed_out")


def test_placement_that_another_beat_never_published_is_sent(scheduler: Scheduler, client: redis.Redis) -> None:
    from tests.support.factories import place_on

    worker = make_worker()
    place_on(worker, make_execution())
    Execution.objects.update(placed_at=past(3), published_at=past(3))
    scheduler.tick()
    until(lambda: client.llen(worker_queue(worker.worker_id)) == 1)


def test_failing_stage_neither_stops_others_nor_makes_beat_spin(
    scheduler: Scheduler, scheduled_executions_refused: None
) -> None:
    make_worker()
    waiting = make_execution()
    make_schedule(job=make_job(), starts_at=past(), next_instant=past())
    scheduler.tick()
    assert [scheduler._firing.step() for _ in range(8)][-1] == MAX_SLEEP
    until(lambda: state(waiting.id) == "queued")
    assert Execution.objects.count() == 1


def test_sleeps_until_the_next_instant(scheduler: Scheduler) -> None:
    assert scheduler._firing.step() == MAX_SLEEP, "nothing is due in the future"
    make_schedule(next_instant=datetime.now(UTC) + timedelta(seconds=0.3))
    assert 0 < scheduler._firing.step() <= 0.3


def test_sleeps_until_the_instant_in_the_due_window(scheduler: Scheduler, settings: Settings) -> None:
    settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = 5.0
    refill_due_window()
    assert scheduler._firing.step() == 5.0, "nothing is due in the future"
    # Only the window knows it: the transaction has not committed, or was rolled back.
    due_window.announce_due([(uuid4(), datetime.now(UTC) + timedelta(seconds=2))])
    assert 0 < scheduler._firing.step() <= 2


def test_signal_during_a_statement_closes_beat(scheduler: Scheduler) -> None:
    """The handler interrupts psycopg, which holds the lock of the connection, and calls `close` on the same thread."""
    closed = threading.Event()
    task = system_task()
    assert task.name in scheduler.schedule
    scheduler._dirty.add(task.name)

    def interrupted_tick() -> None:
        connection.ensure_connection()
        connection.close_at = None  # it is not old enough to be closed instead
        with connection.connection.lock:
            scheduler.close()
            closed.set()
        connection.close()

    threading.Thread(target=interrupted_tick, daemon=True).start()
    assert closed.wait(DEADLINE)
    assert not scheduler._dirty, "the state of system tasks was written"


def test_valid_window_spares_queries(scheduler: Scheduler, settings: Settings) -> None:
    settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = 60.0
    refill_due_window()
    scheduler._firing.step()
    reads = [sql.statement("read_next_due") in query["sql"] for query in queries_of(scheduler._firing.step)]
    assert reads
    assert not any(reads)


def test_wakeup_makes_it_read_retries(scheduler: Scheduler, settings: Settings) -> None:
    settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = 5.0
    refill_due_window()
    scheduler._firing.step()
    make_execution()
    Execution.objects.update(state="backing_off", retry_at=datetime.now(UTC) + timedelta(seconds=2))
    scheduler._firing.on_wakeup()
    assert 0 < scheduler._firing.step() <= 2
    assert 0 < scheduler._firing.step() <= 2, "it remembers the retry"


def test_wiped_window_is_not_valid(scheduler: Scheduler, settings: Settings, client: redis.Redis) -> None:
    settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = 5.0
    refill_due_window()
    scheduler._firing.step()
    client.flushall()
    make_schedule(next_instant=datetime.now(UTC) + timedelta(seconds=2))
    assert 0 < scheduler._firing.step() <= 2


def test_submitted_schedule_is_announced(scheduler: Scheduler, settings: Settings) -> None:
    settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = 5.0
    refill_due_window()
    scheduler._firing.step()
    schedule = make_schedule(next_instant=datetime.now(UTC) + timedelta(seconds=2))
    due_window.announce_due([(schedule.id, schedule.next_fire_at)])
    assert 0 < scheduler._firing.step() <= 2


def test_firing_announces_every_next_instant(scheduler: Scheduler, settings: Settings) -> None:
    """Fire for a while, relying on the window, which knows only what firing announces."""
    settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = 5.0
    start = datetime.now(UTC) + timedelta(seconds=0.5)
    for number in range(5):
        moment = start + timedelta(seconds=number / 5)
        make_schedule(expression="1", starts_at=moment, next_instant=moment)
    refill_due_window()
    scheduler.tick()
    reads = 0

    def tick() -> bool:
        nonlocal reads
        reads += sum(sql.statement("read_next_due") in query["sql"] for query in queries_of(scheduler.tick))
        return Execution.objects.count() >= 20

    until(tick)
    late = [(e.fired_at - e.scheduled_for).total_seconds() for e in Execution.objects.all() if e.scheduled_for]
    assert scheduler.window.unannounced == 0
    assert max(late) < 1
    assert reads <= 2, "Postgres was hardly read"


def test_full_batch_is_followed_at_once(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FIRE_BATCH_INSTANTS_PER_SCHEDULE", 2)
    make_schedule(expression="1", starts_at=past(5.5), next_instant=past(5.5), catch_up="all")
    assert scheduler._firing.step() == 0
    assert Execution.objects.count() == 2


def test_backlog_stage_fires_when_a_batch_is_full(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, client: redis.Redis
) -> None:
    """Only the backlog stage can fire here: on-time firing found a full batch and is not called again."""
    monkeypatch.setattr(limits, "FIRE_BATCH_INSTANTS_PER_SCHEDULE", 1)
    make_schedule(expression="1", starts_at=past(5.5), next_instant=past(5.5), catch_up="all")
    scheduler._backlog.start()
    scheduler._firing.step()
    until(lambda: Execution.objects.count() >= 6)
    instants = [execution.scheduled_for for execution in Execution.objects.all()]
    assert len(instants) == len(set(instants))


def test_does_not_spin_while_another_beat_holds_due_schedules(scheduler: Scheduler) -> None:
    schedule = make_schedule(starts_at=past(), next_instant=past())
    locked, release = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                list(Schedule.objects.select_for_update().filter(id=schedule.id))
                locked.set()
                release.wait(DEADLINE)
        finally:
            connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert locked.wait(DEADLINE)
        assert scheduler._firing.step() == RECHECK_SECONDS
        assert not Execution.objects.exists()
    finally:
        release.set()
        holder.join(DEADLINE)
    scheduler._firing.step()
    assert Execution.objects.count() == 1


def test_wakeup_interrupts_the_sleep(scheduler: Scheduler, settings: Settings) -> None:
    scheduler.tick()
    settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = DEADLINE
    ticking = threading.Thread(target=scheduler.tick)
    ticking.start()
    publisher = BestEffortRedis(settings.PUNCTUAL_REDIS_URL)
    deadline = time.monotonic() + DEADLINE / 2
    while ticking.is_alive() and time.monotonic() < deadline:
        publisher.publish()
        ticking.join(0.05)
    assert not ticking.is_alive()


def test_banner_instance_starts_no_threads(settings: Settings) -> None:
    threads = threading.active_count()
    lazy = Scheduler(app=app, lazy=True)
    assert threading.active_count() == threads
    lazy.sync()


def queries_of(call: Callable[[], object]) -> list[dict[str, str]]:
    with CaptureQueriesContext(connection) as captured:
        call()
    return captured.captured_queries


def system_task(name: str = "jobs.create_partitions", **fields: object) -> PeriodicTask:
    interval, _ = IntervalSchedule.objects.get_or_create(every=1, period="hours")
    values: dict[str, object] = {"last_run_at": past(7200)} | fields
    return PeriodicTask.objects.create(name=name, task=name, interval=interval, **values)


def tick_system_tasks(scheduler: Scheduler) -> None:
    """Run one step, as the thread does."""
    run_safely("system tasks", scheduler._tick_system_tasks)


def test_due_system_task_is_sent_once(scheduler: Scheduler, client: redis.Redis) -> None:
    task = system_task()
    for _ in range(3):
        tick_system_tasks(scheduler)
    assert client.llen("system") == 1
    task.refresh_from_db()
    assert task.total_run_count == 1
    assert task.last_run_at > past(60)


def test_running_beat_sends_system_tasks(scheduler: Scheduler, client: redis.Redis) -> None:
    system_task()
    scheduler.tick()
    until(lambda: client.llen("system") == 1)


def test_all_due_system_tasks_are_sent_in_one_step(scheduler: Scheduler, client: redis.Redis) -> None:
    for number in range(5):
        system_task(f"task-{number}")
    system_task("resting", enabled=False)
    tick_system_tasks(scheduler)
    assert client.llen("system") == 5


def test_two_beats_send_a_system_task_once(make_scheduler: Callable[[], Scheduler], client: redis.Redis) -> None:
    first, second = make_scheduler(), make_scheduler()
    system_task()
    for scheduler in (first, second, first, second):
        tick_system_tasks(scheduler)
    assert client.llen("system") == 1
    assert BeatLease.objects.get().holder == first._identity


def test_another_beat_takes_over_without_resending(
    make_scheduler: Callable[[], Scheduler], client: redis.Redis
) -> None:
    first, second = make_scheduler(), make_scheduler()
    task = system_task()
    tick_system_tasks(second)
    tick_system_tasks(first)
    BeatLease.objects.update(lease_until=past())
    tick_system_tasks(first)
    assert BeatLease.objects.get().holder == first._identity
    assert client.llen("system") == 1, "what the second beat sent is not sent again"
    tick_system_tasks(second)
    task.refresh_from_db()
    assert task.total_run_count == 1


def test_beat_frozen_for_a_lease_reads_system_tasks_again(
    make_scheduler: Callable[[], Scheduler], client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LEADER_LEASE_SECONDS", 0.05)
    scheduler = make_scheduler()
    task = system_task(last_run_at=datetime.now(UTC))
    tick_system_tasks(scheduler)
    assert client.llen("system") == 0
    # As if another beat had led meanwhile: only the database knows what it wrote.
    PeriodicTask.objects.filter(id=task.id).update(last_run_at=past(7200))
    until(lambda: BeatLease.objects.get().lease_until < datetime.now(UTC))
    tick_system_tasks(scheduler)
    assert client.llen("system") == 1


def test_start_does_not_overwrite_edits(scheduler: Scheduler) -> None:
    task = system_task("celery.backend_cleanup", enabled=False)
    tick_system_tasks(scheduler)
    task.refresh_from_db()
    assert not task.enabled
    assert PeriodicTask.objects.count() == 1


def test_interrupt_is_not_logged_as_an_error(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM raises SystemExit during a tick: it must not count as an error of a stage."""

    def interrupted() -> None:
        raise SystemExit(0)

    with pytest.raises(SystemExit):
        run_safely("fire", interrupted)
