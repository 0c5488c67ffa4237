-- auditing._versions. Index: schedule_version_number_once. From the first on: a limit on the number of instants counts them all.
SELECT v.schedule_id, v.from_at, v.to_at, v.paused, v.kind, v.expression, v.timezone, v.starts_at, v.ends_at,
       v.excluded_dates, v.jitter_seconds, v.max_count, v.settled_before
  FROM jobs_scheduleversion v
 WHERE v.schedule_id = ANY(%(ids)s::uuid[]) AND v.from_at <= %(to)s
 ORDER BY v.schedule_id, v.number
