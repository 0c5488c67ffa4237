"""Conversion of periodic tasks to jobs with the same schedule, or to skipped entries."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from celery.schedules import crontab

from punctual_cli.importers.celery_beat import DEFAULT_SCRIPT, JobTemplate, read_app, read_fixture, to_cron_expression
from punctual_cli.importers.import_result import ImportResult
from punctual_client.errors import UsageError

WRAPPING = JobTemplate("sh", DEFAULT_SCRIPT, "celery-broker-url", network=True)
FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
SCHEDULES = [
    {"model": "django_celery_beat.intervalschedule", "pk": 1, "fields": {"every": 90, "period": "minutes"}},
    {"model": "django_celery_beat.intervalschedule", "pk": 2, "fields": {"every": 5, "period": "microseconds"}},
    {
        "model": "django_celery_beat.crontabschedule",
        "pk": 1,
        "fields": {**dict.fromkeys(FIELDS, "*"), "minute": "0", "hour": "22-2", "timezone": "Europe/Paris"},
    },
    {
        "model": "django_celery_beat.solarschedule",
        "pk": 1,
        "fields": {"event": "sunset", "latitude": "48.856600", "longitude": "2.352200"},
    },
    {"model": "django_celery_beat.intervalschedule", "pk": 4, "fields": {"every": 10**400, "period": "days"}},
    {"model": "django_celery_beat.crontabschedule", "pk": 4, "fields": {"timezone": "a\0b"}},
    {"model": "django_celery_beat.clockedschedule", "pk": 1, "fields": {"clocked_time": "2090-01-01T01:00:00+01:00"}},
    {"model": "django_celery_beat.clockedschedule", "pk": 2, "fields": {"clocked_time": "2001-01-01T00:00:00Z"}},
]


def imported(**task: Any) -> ImportResult:
    fields = {"name": "t", "task": "shop.t", "args": "[]", "kwargs": "{}", "enabled": True, **task}
    rows = [*SCHEDULES, {"model": "django_celery_beat.periodictask", "pk": 7, "fields": fields}]
    return read_fixture(json.dumps(rows).encode(), "f.json", WRAPPING)


@pytest.mark.parametrize(
    ("task", "schedule"),
    [
        ({"interval": 1}, {"every_seconds": 5400}),
        ({"interval": 1, "one_off": True}, {"every_seconds": 5400, "max_count": 1}),
        ({"crontab": 1, "start_time": "2026-01-01T00:00:00Z", "expires": "2091-01-01T00:00:00Z"},
         {"cron": "0 0,1,2,22,23 * * *", "timezone": "Europe/Paris", "starts_at": "2026-01-01T00:00:00Z",
          "ends_at": "2091-01-01T00:00:00Z"}),
        ({"solar": 1}, {"solar": "sunset 48.856600,2.352200"}),
        ({"clocked": 1, "one_off": True}, {"at": "2090-01-01T00:00:00Z"}),
    ],
)  # fmt: skip
def test_schedules_are_converted(task: dict[str, Any], schedule: dict[str, Any]) -> None:
    imports = imported(**task)
    assert imports.skipped == ()
    assert imports.jobs[0].job["schedules"] == [schedule]


def test_task_and_arguments_are_in_the_environment_of_the_job() -> None:
    (each,) = imported(
        interval=1, args='[1, "it\'s"]', kwargs='{"a": null}', queue="slow", routing_key="r", expire_seconds=60,
        priority=3, headers='{"x": 1}',
    ).jobs  # fmt: skip
    assert (each.where, each.job["name"], each.job["script"]) == ("f.json, task 7", "t", DEFAULT_SCRIPT)
    assert each.job["env"] == {
        "BEAT_TASK": "shop.t", "BEAT_ARGS": '[1, "it\'s"]', "BEAT_KWARGS": '{"a": null}', "BEAT_QUEUE": "slow",
        "BEAT_ROUTING_KEY": "r", "BEAT_EXPIRES": "60", "BEAT_PRIORITY": "3",
    }  # fmt: skip
    assert each.job["secrets"] == [{"name": "celery-broker-url", "env": "CELERY_BROKER_URL"}]
    assert each.job["network"] is True
    assert [warning.split(":")[0] for warning in each.warnings] == [
        "The option headers is not imported.",
        "celery call has no priority option",
    ]


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ({"interval": 1, "enabled": False}, "disabled"),
        ({"interval": 2}, "more often than once a second"),
        ({"interval": 3}, "not in the file"),
        ({}, "no schedule"),
        ({"clocked": 2}, "has passed"),
        ({"interval": 1, "args": "(1,)"}, "not JSON"),
        ({"interval": 1, "args": "{}"}, "not JSON"),
        ({"interval": 1, "task": None}, "names no task"),
        ({"interval": 1, "task": "celery.backend_cleanup"}, "Celery's own"),
        ({"interval": 1, "start_time": "2026-01-01T00:00:00"}, "no offset"),
        ({"interval": 1, "start_time": "0001-01-01T00:00:00+14:00"}, "before the year 1"),
        ({"interval": 1, "task": "a\0b"}, "invalid in text"),
        ({"interval": 1, "queue": "\ud800"}, "invalid in text"),
        ({"interval": 4}, "too long"),
        ({"crontab": 4}, "invalid in text"),
    ],
)
def test_an_entry_that_cannot_be_converted_is_skipped(task: dict[str, Any], reason: str) -> None:
    imports = imported(**task)
    assert imports.jobs == ()
    assert reason in imports.skipped[0].reason


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'[{"model": "x"}]', b"[" * 100_000])
def test_an_invalid_fixture_is_refused(content: bytes) -> None:
    with pytest.raises(UsageError, match="dumpdata"):
        read_fixture(content, "f", WRAPPING)


@pytest.mark.parametrize(
    "written",
    [
        {"minute": "*/15"}, {"minute": "5-50/7", "hour": "*/3"}, {"hour": "22-2"}, {"hour": "20-4/3"},
        {"day_of_week": "mon-fri"}, {"day_of_week": "sat-tuesday"}, {"day_of_week": "sun,wednesday"},
        {"month_of_year": "nov-feb"}, {"month_of_year": "january,6"}, {"day_of_month": "25-5"},
        {"minute": "1, 2 ,3"}, {"day_of_month": "*/2", "day_of_week": "1-5"}, {"minute": "0,*"},
    ],
)  # fmt: skip
def test_celery_reads_the_converted_schedule_like_the_original(written: dict[str, str]) -> None:
    fields = {**dict.fromkeys(FIELDS, "*"), **written}
    translated = dict(zip(FIELDS, to_cron_expression(fields).split(), strict=True))
    original, read_back = crontab(**fields), crontab(**translated)
    for name in FIELDS:
        assert getattr(original, name) == getattr(read_back, name)


def test_days_that_must_both_match_are_the_nth_weekday_or_nothing() -> None:
    both = {**dict.fromkeys(FIELDS, "*"), "day_of_month": "8-14", "day_of_week": "mon,fri"}
    assert to_cron_expression(both) == "* * * * 1#2,5#2"
    for day, weekday in (("13", "fri"), ("1-7", "mon-fri"), ("1-8", "mon")):
        with pytest.raises(ValueError, match="both the day of the month and the weekday"):
            to_cron_expression({**both, "day_of_month": day, "day_of_week": weekday})


@pytest.mark.parametrize("word", ["x", "1-", "*/0", "1/5", "L", "H", "99999", "", "\u0661"])
def test_a_field_that_celery_would_not_take_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="is invalid"):
        to_cron_expression({**dict.fromkeys(FIELDS, "*"), "minute": word})


APP = """
from datetime import timedelta
from celery import Celery
from celery.schedules import crontab
print("noise")
app = Celery("shop")
app.conf.timezone = "Europe/Paris"
app.conf.beat_schedule = {
    "a": {"task": "shop.a", "schedule": crontab(minute="*/15", day_of_week={1, 3}), "args": (1,),
          "options": {"queue": "q", "expires": timedelta(seconds=30)}},
    "b": {"task": "shop.b", "schedule": 30.0},
    "c": {"task": "shop.c", "schedule": timedelta(minutes=2), "kwargs": {"x": 1}},
    "d": {"task": "shop.d", "schedule": 30, "args": (timedelta(1),)},
    "e": {"task": "shop.e", "schedule": "soon"},
}
"""


def test_the_schedule_of_an_app_is_read_by_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "broken.py").write_text("raise RuntimeError('of its own')")
    monkeypatch.chdir(tmp_path)
    imports = read_app("shop:app", sys.executable, WRAPPING)
    assert [(each.job["name"], each.job["schedules"]) for each in imports.jobs] == [
        ("a", [{"cron": "*/15 * * * 1,3", "timezone": "Europe/Paris"}]),
        ("b", [{"every_seconds": 30}]),
        ("c", [{"every_seconds": 120}]),
    ]
    env = imports.jobs[0].job["env"]
    assert env == {
        "BEAT_TASK": "shop.a", "BEAT_ARGS": "[1]", "BEAT_KWARGS": "{}", "BEAT_QUEUE": "q", "BEAT_EXPIRES": "30.0",
    }  # fmt: skip
    assert [(each.what, each.reason[:10]) for each in imports.skipped] == [("d", "Its argume"), ("e", "Its schedu")]
    with pytest.raises(UsageError, match=r"broken could not be imported with .*: RuntimeError: of its own"):
        read_app("broken", sys.executable, WRAPPING)
    with pytest.raises(UsageError, match="name another with --python"):
        read_app("shop:app", "/nowhere/python", WRAPPING)
