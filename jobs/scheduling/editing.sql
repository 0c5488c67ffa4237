-- name: update_schedules
-- By primary key, rows that the transaction has locked. One statement, since thousands of schedules may use a calendar.
UPDATE jobs_schedule s
   SET kind = n.kind, expression = n.expression, timezone = n.timezone, starts_at = n.starts_at, ends_at = n.ends_at,
       jitter_seconds = n.jitter_seconds, excluded_dates = n.excluded_dates, max_count = n.max_count,
       catch_up = n.catch_up, catch_up_window_seconds = n.catch_up_window_seconds, calendar_id = n.calendar_id,
       own_excluded_dates = n.own_excluded_dates, settled_count = n.settled_count, next_instant = n.next_instant,
       next_fire_at = n.next_fire_at, quarantined_at = n.quarantined_at, quarantine_error = n.quarantine_error
  FROM json_to_recordset(%(rows)s::json)
       AS n (id uuid, kind text, expression text, timezone text, starts_at timestamptz, ends_at timestamptz,
             jitter_seconds float8, excluded_dates date[], max_count int, catch_up text, catch_up_window_seconds float8,
             calendar_id uuid, own_excluded_dates date[], settled_count bigint, next_instant timestamptz,
             next_fire_at timestamptz, quarantined_at timestamptz, quarantine_error text)
 WHERE s.id = n.id
