"""Named calendars: created, edited, deleted.

A calendar that changes takes every schedule that uses it along, in one transaction: what was due is settled with the
dates of before, and the history of each schedule says from when on the new ones counted.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from uuid import UUID

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from jobs import conf, due_window, wakeups
from jobs.errors import Conflict, InvalidInput
from jobs.models import Calendar, Job, JobState, Schedule
from jobs.recurrence import EARLIEST, LATEST, MAX_EXCLUDED_DATES
from jobs.services import schedules
from jobs.services.audit_trail import record
from jobs.services.database import bounded
from jobs.services.job_edit import KEEP, Keep
from jobs.services.job_spec import ScheduleSpec
from jobs.services.locking import lock_jobs_and_schedules
from jobs.services.owner_limits import check_room_for_another
from jobs.services.schedule_editing import Change, put_in_force
from jobs.storable import UNREADABLE_NAME, is_readable_name

_JOBS_NAMED = 3


def create_calendar(*, owner: User, name: str, dates: Iterable[date]) -> Calendar:
    calendar = Calendar(owner=owner, name=_checked_name(name), dates=_checked_dates(dates))
    with transaction.atomic(), bounded(statement_seconds=10):
        check_room_for_another(owner, Calendar, conf.MAX_CALENDARS_PER_OWNER)
        _save(calendar)
        record("calendar.created", calendar, owner_id=calendar.owner_id, after=_told(calendar))
    return calendar


def edit_calendar(
    calendar_id: UUID,
    *,
    name: str | Keep = KEEP,
    dates: Iterable[date] | Keep = KEEP,
    when_locked: Callable[[], None] = lambda: None,
) -> None:
    """Refused as a whole if a schedule would never fire again, or if what is called under its lock raises."""
    with transaction.atomic(), bounded(statement_seconds=60):
        calendar = _locked(calendar_id)
        when_locked()
        told, before = _told(calendar), calendar.dates
        if name is not KEEP:
            calendar.name = _checked_name(name)
        if dates is not KEEP:
            calendar.dates = _checked_dates(dates)
        _save(calendar)
        record("calendar.edited", calendar, owner_id=calendar.owner_id, before=told, after=_told(calendar))
        if calendar.dates != before:
            _rewrite_schedules(calendar)


def delete_calendar(calendar_id: UUID, *, when_locked: Callable[[], None] = lambda: None) -> None:
    with transaction.atomic(), bounded(statement_seconds=10):
        calendar = _locked(calendar_id)
        when_locked()
        users = Job.objects.exclude(state=JobState.CANCELLED).filter(schedules__in=_using(calendar))
        names = list(users.order_by("id").distinct().values_list("name", flat=True)[: _JOBS_NAMED + 1])
        if names:
            shown = ", ".join(names[:_JOBS_NAMED]) + (" and others" if len(names) > _JOBS_NAMED else "")
            raise Conflict(f"The calendar is in use, by {shown}; take it out of their schedules first.")
        # Of cancelled jobs, which fire no more: they keep the dates that they had.
        Schedule.objects.filter(calendar=calendar).update(calendar=None, own_excluded_dates=None)
        record("calendar.deleted", calendar, owner_id=calendar.owner_id, before=_told(calendar))
        calendar.delete()


def find_calendars(owner_id: int, wanted: Sequence[ScheduleSpec], *, lock: bool) -> dict[str, Calendar]:
    """Those that the schedules name, by id or by name; InvalidInput says which is not there.

    Locked, they stay as they are until the transaction ends: whoever stores a schedule with their dates needs that, and
    before any other lock.
    """
    found = read_calendars(owner_id, wanted, lock=lock)
    check_calendars(wanted, found)
    return found


def read_calendars(owner_id: int, wanted: Iterable[ScheduleSpec], *, lock: bool) -> dict[str, Calendar]:
    """The same, of any number of jobs, without those that are not there."""
    words = {spec.calendar for spec in wanted if spec.calendar is not None}
    if not words:
        return {}
    ids = [own for word in words if (own := _as_id(word)) is not None]
    rows = Calendar.objects.filter(Q(id__in=ids) | Q(name__in=words), owner_id=owner_id).order_by("id")
    found = list(rows.select_for_update(no_key=True) if lock else rows)
    calendars = {calendar.name: calendar for calendar in found}
    by_id = {calendar.id: calendar for calendar in found}
    return calendars | {word: by_id[key] for word in words if (key := _as_id(word)) in by_id}


def check_calendars(wanted: Sequence[ScheduleSpec], found: Mapping[str, Calendar]) -> None:
    for index, spec in enumerate(wanted):
        if spec.calendar is not None and spec.calendar not in found:
            raise InvalidInput(
                f"schedules.{index}.calendar", "There is no such calendar of yours; GET /api/v1/calendars lists them."
            )


def _rewrite_schedules(calendar: Calendar) -> None:
    # Nobody begins to use it meanwhile: its lock is ours.
    using = _using(calendar).exclude(job__state=JobState.CANCELLED)
    jobs = lock_jobs_and_schedules(set(using.values_list("job_id", flat=True)))
    now = schedules.database_now()
    changes = [_change(calendar, schedule) for schedule in using.select_related("job").order_by("id")]
    ending = {change.old.id for change in changes if change.comes_into_force}
    schedules.settle_until(now, [job.id for job in jobs], ending=ending)
    put_in_force(changes, now)
    moments = [(change.new.id, change.new.next_fire_at) for change in changes]
    transaction.on_commit(lambda: due_window.announce(moments))
    transaction.on_commit(wakeups.wake_beat)


def _change(calendar: Calendar, old: Schedule) -> Change:
    new = copy.copy(old)
    new.excluded_dates = sorted({*old.written_dates, *calendar.dates})
    where = f"the job {old.job.name} (schedule {old.id})"
    if len(new.excluded_dates) > MAX_EXCLUDED_DATES:
        raise InvalidInput(
            "dates", f"With them {where} excludes more than {MAX_EXCLUDED_DATES} dates; leave out past ones."
        )
    refusal = InvalidInput("dates", f"With these dates {where} would never fire again; leave out some of them.")
    return Change(old, new, paused=old.job.state == JobState.PAUSED, refusal=refusal, may_be_over=True)


def _told(calendar: Calendar) -> dict[str, object]:
    return {"name": calendar.name, "dates": calendar.dates}


def _using(calendar: Calendar) -> QuerySet[Schedule]:
    return Schedule.objects.filter(calendar=calendar)


def _locked(calendar_id: UUID) -> Calendar:
    return Calendar.objects.select_for_update(no_key=True).get(id=calendar_id)


def _save(calendar: Calendar) -> None:
    try:
        with transaction.atomic():
            calendar.save()
    except IntegrityError:
        raise Conflict(f"There is a calendar called {calendar.name} already; choose another name.") from None


def _checked_name(name: str) -> str:
    if not is_readable_name(name):
        raise InvalidInput("name", UNREADABLE_NAME)
    if _as_id(name) is not None:
        raise InvalidInput("name", "The name looks like an id, and calendars are called by either; choose another.")
    return name


def _checked_dates(dates: Iterable[date]) -> list[date]:
    days = sorted(set(dates))
    if len(days) > MAX_EXCLUDED_DATES:
        raise InvalidInput("dates", f"A calendar has at most {MAX_EXCLUDED_DATES} dates; leave out past ones.")
    if days and not EARLIEST.date() <= days[0] <= days[-1] < LATEST.date():
        raise InvalidInput("dates", f"A date must lie between the years {EARLIEST.year} and {LATEST.year}.")
    return days


def _as_id(word: str) -> UUID | None:
    try:
        return UUID(word)
    except ValueError:
        return None
