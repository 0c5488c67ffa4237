-- name: lock_due_schedules_of_job
-- Index: the one on jobs_schedule.job_id. Waits for locks, since the caller is about to change the schedules, and every
-- earlier instant belongs to the former version. Of schedules that continue, only those whose jitter delay has passed.
SELECT s.id, s.job_id, s.kind, s.expression, s.timezone, s.starts_at, s.ends_at, s.jitter_seconds, s.catch_up,
       s.catch_up_window_seconds, nullif(s.excluded_dates, '{}'), s.max_count, s.settled_count, s.next_instant, %(until)s::timestamptz
  FROM jobs_schedule s
 WHERE s.job_id = %(job_id)s
   AND (s.next_fire_at <= %(until)s::timestamptz
        OR s.next_instant <= %(until)s::timestamptz
           AND (%(ending)s::uuid[] IS NULL OR s.id = ANY(%(ending)s::uuid[])))
 ORDER BY s.id
   FOR NO KEY UPDATE OF s

-- name: read_next_due
-- Indexes: schedule_due and execution_backing_off, two rows of each. The earliest due time, and the earliest one in the
-- future: a stuck schedule stays due and must not hide the others.
SELECT extract(epoch FROM least(due.fire_at, due.retry_at) - clock_timestamp())::float8,
       extract(epoch FROM least(ahead.fire_at, ahead.retry_at) - clock_timestamp())::float8,
       coalesce(extract(epoch FROM due.retry_at - clock_timestamp())::float8, 'infinity')
  FROM (SELECT (SELECT min(next_fire_at) FROM jobs_schedule WHERE next_fire_at IS NOT NULL) AS fire_at,
               (SELECT min(retry_at) FROM jobs_execution WHERE phase = 'backing_off') AS retry_at) due,
       (SELECT (SELECT min(next_fire_at) FROM jobs_schedule WHERE next_fire_at > statement_timestamp()) AS fire_at,
               (SELECT min(retry_at) FROM jobs_execution
                 WHERE phase = 'backing_off' AND retry_at > statement_timestamp()) AS retry_at) ahead

-- name: lock_due_schedules
-- Index: schedule_due. SKIP LOCKED: beats share the due schedules without waiting. No joins: read_current_versions reads
-- the versions under these locks. A join would read them before, and half see an edit that commits in between.
SELECT s.id, s.job_id, s.kind, s.expression, s.timezone, s.starts_at, s.ends_at, s.jitter_seconds, s.catch_up,
       s.catch_up_window_seconds, nullif(s.excluded_dates, '{}'), s.max_count, s.settled_count, s.next_instant, statement_timestamp()
  FROM jobs_schedule s
 WHERE s.next_fire_at <= statement_timestamp() - make_interval(secs => %(min_late_seconds)s)
   AND s.next_fire_at > statement_timestamp() - make_interval(secs => %(max_late_seconds)s)
   AND s.id <> ALL(%(held)s::uuid[])
   AND (%(only)s::uuid[] IS NULL OR s.id = ANY(%(only)s::uuid[]))
 ORDER BY s.next_fire_at
 LIMIT %(limit)s
   FOR NO KEY UPDATE OF s SKIP LOCKED

-- name: read_current_versions
-- By primary keys, under the locks of the jobs' schedules, which an edit takes first. The foreign keys of a new execution
-- take KEY SHARE locks and would wait for them; SKIP LOCKED leaves such jobs out instead. ARRAY(SELECT …) hides the
-- number of jobs from the planner, which would plan again for every batch.
SELECT j.id, v.id, v.overlap, v.max_concurrency,
       EXISTS (SELECT FROM jobs_dependency d WHERE d.job_id = j.id OFFSET 0)
  FROM jobs_job j
  JOIN jobs_jobversion v ON v.id = j.current_version_id
  JOIN jobs_queue q ON q.id = v.queue_id
 WHERE j.id = ANY(ARRAY(SELECT unnest(%(job_ids)s::uuid[])))
   FOR KEY SHARE OF j, v, q SKIP LOCKED

-- name: advance_schedules
-- By primary key, in the transaction that locked these rows and inserted their executions.
UPDATE jobs_schedule s
   SET next_instant = n.next_instant, next_fire_at = coalesce(n.next_fire_at, n.next_instant), settled_count = s.settled_count + n.settled,
       quarantined_at = CASE WHEN n.error <> '' THEN clock_timestamp() ELSE s.quarantined_at END,
       quarantine_error = CASE WHEN n.error <> '' THEN n.error ELSE s.quarantine_error END
  FROM json_to_recordset(%(rows)s::json)
       AS n (id uuid, next_instant timestamptz, next_fire_at timestamptz, settled int, error text)
 WHERE s.id = n.id
