"""The population of `population.py` as stock django-celery-beat keeps it, in a database of its own, made by SQL."""

from __future__ import annotations

from datetime import datetime, timedelta

import psycopg

from benchmarks.population import CHUNK, INTERVAL_SECONDS, MOMENT, SPIKE, ZONES

# The names of what shall be due begin so, and end with a number.
ARMED = "armed "
OVERDUE, HERD, STEADY = f"{ARMED}overdue ", f"{ARMED}spike ", f"{ARMED}steady "
FRESH = f"""
CREATE TEMPORARY TABLE fresh ON COMMIT DROP AS
SELECT n, n %% 4 = 0 AS daily, zone, moment - interval '1 day' AS last_run_at,
       extract(minute FROM local)::text AS minute, extract(hour FROM local)::text AS hour,
       extract(dow FROM local)::text AS day_of_week
  FROM generate_series(%(first)s::int, %(last)s::int) n,
       LATERAL (SELECT (%(zones)s::text[])[1 + n / 4 %% 4], {MOMENT}) AS chosen (zone, moment),
       LATERAL (SELECT moment AT TIME ZONE zone) AS there (local)
"""  # noqa: S608 - constants of this module
CRONTABS = """
INSERT INTO django_celery_beat_crontabschedule (minute, hour, day_of_month, month_of_year, day_of_week, timezone)
SELECT minute, hour, '*', '*', day_of_week, zone FROM fresh WHERE NOT daily
EXCEPT SELECT minute, hour, '*', '*', day_of_week, timezone FROM django_celery_beat_crontabschedule
"""
COLUMNS = """(name, task, args, kwargs, headers, description, enabled, one_off, total_run_count, date_changed,
    crontab_id, interval_id, last_run_at)"""
TASKS = f"""
INSERT INTO django_celery_beat_periodictask {COLUMNS}
SELECT 'task ' || n, 'benchmarks.nothing', '[]', '{{}}', '{{}}', '', true, false, 0, now(),
       c.id, CASE WHEN daily THEN %(daily)s::int END, CASE WHEN daily THEN last_run_at ELSE now() END
  FROM fresh LEFT JOIN django_celery_beat_crontabschedule c
       ON NOT daily AND c.timezone = zone
      AND (c.minute, c.hour, c.day_of_week) = (fresh.minute, fresh.hour, fresh.day_of_week)
"""  # noqa: S608
ARM = f"""
INSERT INTO django_celery_beat_periodictask {COLUMNS}
SELECT %(prefix)s || n, 'benchmarks.nothing', '[]', '{{}}', '{{}}', '', true, false, 0, now(),
       %(crontab)s::int, %(interval)s::int, %(last_run_at)s::timestamptz + make_interval(secs => n * %(apart)s)
  FROM generate_series(0, %(count)s - 1) n
"""  # noqa: S608


class StockRows:
    def __init__(self, connection: psycopg.Connection[tuple[int, ...]]) -> None:
        self._connection = connection
        self._made = 0
        self._daily = self._interval(1, "days")

    def grow_to(self, size: int) -> None:
        for first in range(self._made + 1, size + 1, CHUNK):
            bounds = {"first": first, "last": min(first + CHUNK - 1, size), "zones": ZONES}
            with self._connection.transaction():
                self._connection.execute(FRESH, bounds)
                self._connection.execute(CRONTABS)
                self._connection.execute(TASKS, {"daily": self._daily})
        self._made = max(size, self._made)
        self._connection.execute("VACUUM (ANALYZE) django_celery_beat_periodictask, django_celery_beat_crontabschedule")

    def disarm(self) -> None:
        self._connection.execute("DELETE FROM django_celery_beat_periodictask WHERE name LIKE %s", [f"{ARMED}%"])

    def arm_overdue(self, now: datetime, count: int) -> None:
        last_run_at = now - timedelta(days=1, seconds=1)
        self._arm(OVERDUE, count, last_run_at, interval=self._daily)

    def arm_spike(self, at: datetime) -> None:
        crontab = self._value(
            "INSERT INTO django_celery_beat_crontabschedule"
            " (minute, hour, day_of_month, month_of_year, day_of_week, timezone)"
            " VALUES (%s, %s, '*', '*', '*', 'UTC') RETURNING id",
            at.minute,
            at.hour,
        )
        self._arm(HERD, SPIKE, at - timedelta(days=1), crontab=crontab)

    def arm_steady(self, first: datetime, *, per_second: int) -> None:
        self._arm(
            STEADY,
            per_second * INTERVAL_SECONDS,
            first - timedelta(seconds=INTERVAL_SECONDS),
            interval=self._interval(INTERVAL_SECONDS, "seconds"),
            apart=1 / per_second,
        )

    def _arm(
        self,
        prefix: str,
        count: int,
        last_run_at: datetime,
        *,
        crontab: int | None = None,
        interval: int | None = None,
        apart: float = 0,
    ) -> None:
        schedule = {"crontab": crontab, "interval": interval, "last_run_at": last_run_at, "apart": apart}
        self._connection.execute(ARM, {"prefix": prefix, "count": count, **schedule})

    def _interval(self, every: int, period: str) -> int:
        return self._value(
            "INSERT INTO django_celery_beat_intervalschedule (every, period) VALUES (%s, %s) RETURNING id",
            every,
            period,
        )

    def _value(self, statement: str, *parameters: object) -> int:
        row = self._connection.execute(statement, parameters).fetchone()
        assert row is not None
        return row[0]
