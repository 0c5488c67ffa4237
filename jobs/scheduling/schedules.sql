-- name: insert_schedule_versions
-- By primary key, rows that the transaction has locked; their numbers by schedule_version_number_once. The stored values
-- are in force from now on. A fixed delay starts at once, so now is one of its instants.
INSERT INTO jobs_scheduleversion (id, schedule_id, number, from_at, paused, kind, expression, timezone, starts_at, ends_at,
                                  jitter_seconds, excluded_dates, max_count, settled_before)
SELECT v.id, s.id, COALESCE((SELECT max(h.number) FROM jobs_scheduleversion h WHERE h.schedule_id = s.id), 0) + 1,
       CASE WHEN s.kind = 'delay' AND NOT %(paused)s THEN %(now)s::timestamptz - interval '1 microsecond'
            ELSE %(now)s END,
       %(paused)s, s.kind, s.expression, s.timezone, s.starts_at, s.ends_at, s.jitter_seconds, s.excluded_dates,
       s.max_count, s.settled_count
  FROM UNNEST(%(ids)s::uuid[], %(schedules)s::uuid[]) AS v (id, schedule_id)
  JOIN jobs_schedule s ON s.id = v.schedule_id
