"""The parts of one stage of beat: none of them, failing, stops the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jobs import beat
from jobs.beat import Scheduler
from jobs.models import Execution
from jobs.services import reaping
from scheduler_project.celery import app
from tests.factories import make_execution, make_worker, run_on, stamp_reaping

pytestmark = pytest.mark.django_db(transaction=True)

PARTS = ["reap_lost_workers", "sweep_blocked", "expire_overdue", "add_counts"]


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    scheduler = Scheduler(app=app)
    yield scheduler
    scheduler.close()
    scheduler._listener.close()


@pytest.mark.parametrize("failing", PARTS)
def test_a_part_of_reaping_that_fails_does_not_stop_the_others(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    done: list[str] = []

    def watched(name: str) -> None:
        part = getattr(beat, name)

        def call(*args: object, **options: object) -> object:
            if name == failing:
                raise RuntimeError(name)
            answer = part(*args, **options)
            done.append(name)
            return answer

        monkeypatch.setattr(beat, name, call)

    for name in PARTS:
        watched(name)
    scheduler._reap()
    assert done == [name for name in PARTS if name != failing]


def test_what_is_taken_back_is_placed_at_once_also_when_another_part_fails(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise RuntimeError

    run_on(make_worker(name="again"), make_execution())
    stamp_reaping()
    Execution.objects.update(incarnation=0)
    monkeypatch.setattr(beat, "sweep_blocked", fail)
    monkeypatch.setattr(beat, "expire_overdue", fail)
    scheduler._placing._wanted.clear()
    scheduler._reap()
    assert Execution.objects.get().state == "ready"
    assert scheduler._placing._wanted.is_set()
    assert reaping.reap_lost_workers() == reaping.ReapResult()
