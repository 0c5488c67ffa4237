"""Named calendars of excluded dates: create, edit, delete.

An edit changes every schedule that uses the calendar in the same transaction: due instants fire by the old dates, and
the history of each schedule records since when the new dates apply.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from uuid import UUID

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from jobs.access.quotas import check_object_quota
from jobs.audit.log import record_change
from jobs.db import due_window, wakeups
from jobs.db.clock import database_now
from jobs.db.locks import lock_jobs_and_schedules
from jobs.db.transactions import with_timeouts
from jobs.domain import limits
from jobs.domain.errors import Conflict, InvalidInput
from jobs.domain.job_edit import KEEP, Keep
from jobs.domain.job_spec import ScheduleSpec
from jobs.domain.recurrence import EARLIEST, LATEST, MAX_EXCLUDED_DATES
from jobs.domain.text_validation import UNREADABLE_NAME_MESSAGE, is_readable_name
from jobs.models import Calendar, Job, JobState, Schedule
from jobs.scheduling import schedules
from jobs.scheduling.editing import ScheduleChange, apply_changes
from jobs.scheduling.firing import fire_backlog

_MAX_NAMED_JOBS = 3


def create_calendar(*, owner: User, name: str, dates: Iterable[date]) -> Calendar:
    calendar = Calendar(owner=owner, name=_validate_name(name), dates=_validate_dates(dates))
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        check_object_quota(owner, Calendar, limits.MAX_CALENDARS_PER_OWNER)
        _save(calendar)
        record_change("calendar.created", calendar, owner_id=calendar.owner_id, after=_snapshot(calendar))
    return calendar


def edit_calendar(
    calendar_id: UUID,
    *,
    name: str | Keep = KEEP,
    dates: Iterable[date] | Keep = KEEP,
    precondition: Callable[[], None] = lambda: None,
) -> None:
    """Edit a calendar, unless a schedule would never fire again."""
    fire_backlog(Schedule.objects.filter(calendar_id=calendar_id))
    with transaction.atomic(), with_timeouts(statement_seconds=60):
        calendar = _lock_calendar(calendar_id)
        precondition()
        before, former_dates = _snapshot(calendar), calendar.dates
        if name is not KEEP:
            calendar.name = _validate_name(name)
        if dates is not KEEP:
            calendar.dates = _validate_dates(dates)
        _save(calendar)
        record_change("calendar.edited", calendar, owner_id=calendar.owner_id, before=before, after=_snapshot(calendar))
        if calendar.dates != former_dates:
            _rewrite_schedules(calendar)


def delete_calendar(calendar_id: UUID, *, precondition: Callable[[], None] = lambda: None) -> None:
    with transaction.atomic(), with_timeouts(statement_seconds=10):
        calendar = _lock_calendar(calendar_id)
        precondition()
        users = Job.objects.exclude(state=JobState.CANCELLED).filter(schedules__in=_schedules_using(calendar))
        names = list(users.order_by("id").distinct().values_list("name", flat=True)[: _MAX_NAMED_JOBS + 1])
        if names:
            shown = ", ".join(names[:_MAX_NAMED_JOBS]) + (" and others" if len(names) > _MAX_NAMED_JOBS else "")
            raise Conflict(f"The calendar is in use, by {shown}; take it out of their schedules first.")
        # Only schedules of cancelled jobs are left; they keep their dates.
        Schedule.objects.filter(calendar=calendar).update(calendar=None, own_excluded_dates=None)
        record_change("calendar.deleted", calendar, owner_id=calendar.owner_id, before=_snapshot(calendar))
        calendar.delete()


def find_calendars(owner_id: int, specs: Sequence[ScheduleSpec], *, lock: bool) -> dict[str, Calendar]:
    """Return the calendars that the schedules name; InvalidInput names a missing one.

    A transaction that stores schedules with their dates must lock them, before it takes any other lock.
    """
    found = read_calendars(owner_id, specs, lock=lock)
    check_calendars(specs, found)
    return found


def read_calendars(owner_id: int, specs: Iterable[ScheduleSpec], *, lock: bool) -> dict[str, Calendar]:
    """Return the calendars of schedules of any number of jobs, leaving out missing ones."""
    references = {spec.calendar for spec in specs if spec.calendar is not None}
    if not references:
        return {}
    ids = [own for reference in references if (own := _parse_id(reference)) is not None]
    rows = Calendar.objects.filter(Q(id__in=ids) | Q(name__in=references), owner_id=owner_id).order_by("id")
    found = list(rows.select_for_update(no_key=True) if lock else rows)
    calendars = {calendar.name: calendar for calendar in found}
    by_id = {calendar.id: calendar for calendar in found}
    return calendars | {reference: by_id[key] for reference in references if (key := _parse_id(reference)) in by_id}


def check_calendars(specs: Sequence[ScheduleSpec], found: Mapping[str, Calendar]) -> None:
    for index, spec in enumerate(specs):
        if spec.calendar is not None and spec.calendar not in found:
            raise InvalidInput(
                f"schedules.{index}.calendar", "There is no such calendar of yours; GET /api/v1/calendars lists them."
            )


def _rewrite_schedules(calendar: Calendar) -> None:
    # The lock of the calendar keeps other schedules from starting to use it.
    using = _schedules_using(calendar).exclude(job__state=JobState.CANCELLED)
    jobs = lock_jobs_and_schedules(set(using.values_list("job_id", flat=True)))
    now = database_now()
    changes = [_build_change(calendar, schedule) for schedule in using.select_related("job").order_by("id")]
    ending = {change.old.id for change in changes if change.takes_effect}
    schedules.fire_until(now, [job.id for job in jobs], ending=ending)
    apply_changes(changes, now)
    due = [(change.new.id, change.new.next_fire_at) for change in changes]
    transaction.on_commit(lambda: due_window.announce_due(due))
    transaction.on_commit(wakeups.wake_beat)


def _build_change(calendar: Calendar, old: Schedule) -> ScheduleChange:
    new = copy.copy(old)
    new.excluded_dates = sorted({*old.written_dates, *calendar.dates})
    subject = f"the job {old.job.name} (schedule {old.id})"
    if len(new.excluded_dates) > MAX_EXCLUDED_DATES:
        raise InvalidInput(
            "dates", f"With them {subject} excludes more than {MAX_EXCLUDED_DATES} dates; leave out past ones."
        )
    refusal = InvalidInput("dates", f"With these dates {subject} would never fire again; leave out some of them.")
    return ScheduleChange(old, new, paused=old.job.state == JobState.PAUSED, refusal=refusal, may_be_exhausted=True)


def _snapshot(calendar: Calendar) -> dict[str, object]:
    return {"name": calendar.name, "dates": calendar.dates}


def _schedules_using(calendar: Calendar) -> QuerySet[Schedule]:
    return Schedule.objects.filter(calendar=calendar)


def _lock_calendar(calendar_id: UUID) -> Calendar:
    return Calendar.objects.select_for_update(no_key=True).get(id=calendar_id)


def _save(calendar: Calendar) -> None:
    try:
        with transaction.atomic():
            calendar.save()
    except IntegrityError:
        raise Conflict(f"There is a calendar called {calendar.name} already; choose another name.") from None


def _validate_name(name: str) -> str:
    if not is_readable_name(name):
        raise InvalidInput("name", UNREADABLE_NAME_MESSAGE)
    if _parse_id(name) is not None:
        raise InvalidInput("name", "The name is a valid id, which would be ambiguous; choose another.")
    return name


def _validate_dates(dates: Iterable[date]) -> list[date]:
    days = sorted(set(dates))
    if len(days) > MAX_EXCLUDED_DATES:
        raise InvalidInput("dates", f"A calendar has at most {MAX_EXCLUDED_DATES} dates; leave out past ones.")
    if days and not EARLIEST.date() <= days[0] <= days[-1] < LATEST.date():
        raise InvalidInput("dates", f"A date must lie between the years {EARLIEST.year} and {LATEST.year}.")
    return days


def _parse_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
