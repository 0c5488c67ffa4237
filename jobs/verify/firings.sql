-- name: audit_schedules
-- A page by primary key. For a quarantined schedule, its last record tells how far it has fired.
SELECT s.id, s.next_instant, s.quarantined_at IS NOT NULL,
       CASE WHEN s.quarantined_at IS NOT NULL THEN greatest(
           (SELECT max(e.scheduled_for) FROM jobs_execution e WHERE e.schedule_id = s.id),
           (SELECT max(d.last) FROM jobs_droppedrange d WHERE d.schedule_id = s.id)) END,
       statement_timestamp()
  FROM jobs_schedule s
  JOIN jobs_job j ON j.id = s.job_id
 WHERE s.id > %(after)s
   AND (%(owner_id)s::bigint IS NULL OR j.owner_id = %(owner_id)s::bigint)
   AND (%(job_id)s::uuid IS NULL OR s.job_id = %(job_id)s::uuid)
 ORDER BY s.id
 LIMIT %(limit)s

-- name: audit_versions
-- Index: schedule_version_number_once. All versions from the first on, because a limit on the number of instants counts
-- from there.
SELECT v.schedule_id, v.from_at, v.to_at, v.paused, v.kind, v.expression, v.timezone, v.starts_at, v.ends_at,
       v.excluded_dates, v.jitter_seconds, v.max_count, v.settled_before
  FROM jobs_scheduleversion v
 WHERE v.schedule_id = ANY(%(ids)s::uuid[]) AND v.from_at <= %(to)s
 ORDER BY v.schedule_id, v.number

-- name: audit_dropped
-- Index: dropped_by_schedule.
SELECT d.schedule_id, d.first, d.last, d.count
  FROM jobs_droppedrange d
 WHERE d.schedule_id = ANY(%(ids)s::uuid[]) AND d.first <= %(to)s AND d.last >= %(from)s
 ORDER BY d.schedule_id, d.first, d.id

-- name: audit_executions
-- Index: execution_once_per_instant. A page by keyset; the id matters only where that unique index is violated, which an
-- audit must detect.
SELECT e.schedule_id::text, e.scheduled_for, e.id::text, e.state, e.fired_at, e.trigger = 'schedule'
  FROM jobs_execution e
 WHERE e.schedule_id = ANY(%(ids)s::uuid[]) AND e.scheduled_for >= %(from)s AND e.scheduled_for <= %(to)s
   AND (e.schedule_id, e.scheduled_for, e.id) > (%(schedule_id)s::uuid, %(instant)s, %(id)s::uuid)
 ORDER BY e.schedule_id, e.scheduled_for, e.id
 LIMIT %(limit)s
