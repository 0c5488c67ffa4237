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

from jobs import conf, due_window, sql
from jobs.beat import LOOK_AGAIN_SECONDS, Scheduler
from jobs.messages import worker_queue
from jobs.models import BeatLease, Execution, Schedule, Worker
from jobs.tasks import refill_due_window
from jobs.wakeups import HurriedRedis, Waker
from scheduler_project.celery import app
from tests.factories import make_execution, make_job, make_schedule, make_worker, run_on, stamp_reaping
from tests.waiting import wait_for

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
def make_scheduler(settings: Settings, client: redis.Redis) -> Iterator[Callable[[], Scheduler]]:
    settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = MAX_SLEEP
    made: list[Scheduler] = []

    def make() -> Scheduler:
        made.append(Scheduler(app=app))
        return made[-1]

    yield make
    for scheduler in made:
        scheduler.close()
        scheduler._listener.close()


@pytest.fixture
def scheduler(make_scheduler: Callable[[], Scheduler]) -> Scheduler:
    return make_scheduler()


def until(condition: Callable[[], object]) -> None:
    wait_for(condition, "what the test waits for", seconds=DEADLINE)


def past(seconds: float = 1) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def state(execution_id: UUID) -> str:
    return Execution.objects.get(id=execution_id).state


def test_a_tick_fires_places_and_publishes(scheduler: Scheduler, client: redis.Redis) -> None:
    worker = make_worker()
    make_schedule(starts_at=past(), next_instant=past(), expression="3600")
    assert scheduler.tick() == 0, "it has waited by itself"
    until(lambda: client.llen(worker_queue(worker.worker_id)) == 1)
    assert Execution.objects.get().state == "queued"


def test_a_tick_wakes_what_backed_off(scheduler: Scheduler) -> None:
    execution = make_execution()
    Execution.objects.update(state="backing_off", retry_at=past())
    scheduler.tick()
    assert state(execution.id) == "ready"


def test_a_tick_reaps(scheduler: Scheduler) -> None:
    execution = make_execution()
    run_on(make_worker(), execution)
    Worker.objects.update(lease_until=past())
    stamp_reaping()
    scheduler.tick()
    until(lambda: Worker.objects.get().status == "lost")
    assert state(execution.id) == "ready"


def test_a_tick_ends_what_is_overdue(scheduler: Scheduler) -> None:
    execution = make_execution()
    Execution.objects.update(deadline_at=past())
    scheduler.tick()
    until(lambda: state(execution.id) == "timed_out")


def test_what_another_beat_placed_and_never_published_is_found(scheduler: Scheduler, client: redis.Redis) -> None:
    from tests.factories import place_on

    worker = make_worker()
    place_on(worker, make_execution())
    Execution.objects.update(placed_at=past(3), published_at=past(3))
    scheduler.tick()
    until(lambda: client.llen(worker_queue(worker.worker_id)) == 1)


def test_a_stage_that_fails_neither_stops_the_others_nor_makes_beat_spin(
    scheduler: Scheduler, scheduled_executions_refused: None
) -> None:
    make_worker()
    waiting = make_execution()
    make_schedule(job=make_job(), starts_at=past(), next_instant=past())
    scheduler.tick()
    assert scheduler._fire_and_look_ahead() == MAX_SLEEP
    until(lambda: state(waiting.id) == "queued")
    assert Execution.objects.count() == 1


def test_it_sleeps_until_the_next_instant(scheduler: Scheduler) -> None:
    assert scheduler._fire_and_look_ahead() == MAX_SLEEP, "nothing is to come"
    make_schedule(next_instant=datetime.now(UTC) + timedelta(seconds=0.3))
    assert 0 < scheduler._fire_and_look_ahead() <= 0.3


def test_it_sleeps_until_the_moment_that_the_window_announces(scheduler: Scheduler, settings: Settings) -> None:
    settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = 5.0
    refill_due_window()
    assert scheduler._fire_and_look_ahead() == 5.0, "nothing is to come"
    # Only the window knows of this one: whoever announced it has not committed it, or took it back.
    due_window.announce([(uuid4(), datetime.now(UTC) + timedelta(seconds=2))])
    assert 0 < scheduler._fire_and_look_ahead() <= 2


def test_while_it_believes_the_window_it_hardly_asks_postgres(scheduler: Scheduler, settings: Settings) -> None:
    settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = 60.0
    refill_due_window()
    scheduler._fire_and_look_ahead()
    questions = [sql.statement("next_due") in query["sql"] for query in queries_of(scheduler._fire_and_look_ahead)]
    assert questions
    assert not any(questions)


def test_after_a_wake_up_it_asks_postgres_for_retries(scheduler: Scheduler, settings: Settings) -> None:
    settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = 5.0
    refill_due_window()
    scheduler._fire_and_look_ahead()
    make_execution()
    Execution.objects.update(state="backing_off", retry_at=datetime.now(UTC) + timedelta(seconds=2))
    scheduler._changed = True
    assert 0 < scheduler._fire_and_look_ahead() <= 2
    assert 0 < scheduler._fire_and_look_ahead() <= 2, "it remembers"


def test_a_wiped_window_is_not_believed(scheduler: Scheduler, settings: Settings, client: redis.Redis) -> None:
    settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = 5.0
    refill_due_window()
    scheduler._fire_and_look_ahead()
    client.flushall()
    make_schedule(next_instant=datetime.now(UTC) + timedelta(seconds=2))
    assert 0 < scheduler._fire_and_look_ahead() <= 2


def test_a_schedule_that_is_submitted_for_soon_is_announced(scheduler: Scheduler, settings: Settings) -> None:
    settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = 5.0
    refill_due_window()
    scheduler._fire_and_look_ahead()
    schedule = make_schedule(next_instant=datetime.now(UTC) + timedelta(seconds=2))
    due_window.announce([(schedule.id, schedule.next_fire_at)])
    assert 0 < scheduler._fire_and_look_ahead() <= 2


def test_the_window_announces_all_that_firing_advances(scheduler: Scheduler, settings: Settings) -> None:
    """Fired again and again for a while, by the window's word, which knows only what firing tells it."""
    settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = 5.0
    # Patient: on a busy machine Redis may be slow, and then it is rightly not believed.
    scheduler.window._redis = HurriedRedis(settings.PUNCTUAL_REDIS_URL, timeout_seconds=DEADLINE)
    start = datetime.now(UTC) + timedelta(seconds=0.5)
    for number in range(5):
        moment = start + timedelta(seconds=number / 5)
        make_schedule(expression="1", starts_at=moment, next_instant=moment)
    refill_due_window()
    scheduler.tick()
    questions = 0

    def tick() -> bool:
        nonlocal questions
        questions += sum(sql.statement("next_due") in query["sql"] for query in queries_of(scheduler.tick))
        return Execution.objects.count() >= 20

    until(tick)
    late = [(e.fired_at - e.scheduled_for).total_seconds() for e in Execution.objects.all() if e.scheduled_for]
    assert scheduler.window.unannounced == 0
    assert max(late) < 1
    assert questions <= 2, "Postgres was hardly asked"


def test_a_full_batch_is_followed_at_once(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "FIRE_BATCH_INSTANTS_EACH", 2)
    make_schedule(expression="1", starts_at=past(5.5), next_instant=past(5.5), catch_up="all")
    assert scheduler._fire_and_look_ahead() == 0
    assert Execution.objects.count() == 2


def test_when_much_is_due_a_second_hand_fires_along(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, client: redis.Redis
) -> None:
    """Only the second one may fire here: the first finds a full batch and is not asked again."""
    monkeypatch.setattr(conf, "FIRE_BATCH_INSTANTS_EACH", 1)
    make_schedule(expression="1", starts_at=past(5.5), next_instant=past(5.5), catch_up="all")
    scheduler._firing_along.start()
    scheduler._fire_and_look_ahead()
    until(lambda: Execution.objects.count() >= 6)
    instants = [execution.scheduled_for for execution in Execution.objects.all()]
    assert len(instants) == len(set(instants))


def test_it_does_not_spin_while_another_beat_holds_what_is_due(scheduler: Scheduler) -> None:
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
        assert scheduler._fire_and_look_ahead() == LOOK_AGAIN_SECONDS
        assert not Execution.objects.exists()
    finally:
        release.set()
        holder.join(DEADLINE)
    scheduler._fire_and_look_ahead()
    assert Execution.objects.count() == 1


def test_a_wake_up_ends_its_sleep(scheduler: Scheduler, settings: Settings) -> None:
    scheduler.tick()
    settings.PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = DEADLINE
    ticking = threading.Thread(target=scheduler.tick)
    ticking.start()
    waker = Waker(HurriedRedis(settings.PUNCTUAL_REDIS_URL))
    deadline = time.monotonic() + DEADLINE / 2
    while ticking.is_alive() and time.monotonic() < deadline:
        waker.wake()
        ticking.join(0.05)
    assert not ticking.is_alive()


def test_the_instance_that_prints_the_banner_takes_nothing(settings: Settings) -> None:
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
    """As its thread does it, once."""
    scheduler._guard("system tasks", scheduler._tick_system_tasks)


def test_a_due_system_task_is_sent_once_and_remembered(scheduler: Scheduler, client: redis.Redis) -> None:
    task = system_task()
    for _ in range(3):
        tick_system_tasks(scheduler)
    assert client.llen("system") == 1
    task.refresh_from_db()
    assert task.total_run_count == 1
    assert task.last_run_at > past(60)


def test_a_beat_that_runs_sends_system_tasks_by_itself(scheduler: Scheduler, client: redis.Redis) -> None:
    system_task()
    scheduler.tick()
    until(lambda: client.llen("system") == 1)


def test_all_due_system_tasks_are_sent_in_one_round(scheduler: Scheduler, client: redis.Redis) -> None:
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


def test_another_beat_takes_over_and_knows_what_was_sent(
    make_scheduler: Callable[[], Scheduler], client: redis.Redis
) -> None:
    first, second = make_scheduler(), make_scheduler()
    task = system_task()
    tick_system_tasks(second)
    tick_system_tasks(first)
    BeatLease.objects.update(lease_until=past())
    tick_system_tasks(first)
    assert BeatLease.objects.get().holder == first._identity
    assert client.llen("system") == 1, "what the second sent is not sent again"
    tick_system_tasks(second)
    task.refresh_from_db()
    assert task.total_run_count == 1


def test_a_beat_that_stood_still_for_a_lease_reads_anew(
    make_scheduler: Callable[[], Scheduler], client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conf, "DUTY_LEASE_SECONDS", 0.05)
    scheduler = make_scheduler()
    task = system_task(last_run_at=datetime.now(UTC))
    tick_system_tasks(scheduler)
    assert client.llen("system") == 0
    # Another beat had charge of the tasks meanwhile, and what it wrote is known only to the database.
    PeriodicTask.objects.filter(id=task.id).update(last_run_at=past(7200))
    until(lambda: BeatLease.objects.get().lease_until < datetime.now(UTC))
    tick_system_tasks(scheduler)
    assert client.llen("system") == 1


def test_starting_writes_nothing_over_what_was_edited(scheduler: Scheduler) -> None:
    task = system_task("celery.backend_cleanup", enabled=False)
    tick_system_tasks(scheduler)
    task.refresh_from_db()
    assert not task.enabled
    assert PeriodicTask.objects.count() == 1


def test_stages_are_no_longer_run_after_an_interrupt(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM raises SystemExit in the middle of a tick: it must not be taken for an error of a stage."""

    def interrupted() -> None:
        raise SystemExit(0)

    with pytest.raises(SystemExit):
        scheduler._guard("fire", interrupted)
