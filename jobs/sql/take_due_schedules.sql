-- firing.fire_due_schedules. Index: schedule_due. SKIP LOCKED: beats share the due schedules without waiting.
SELECT s.id, s.job_id, s.kind, s.expression, s.timezone, s.starts_at, s.ends_at, s.jitter_seconds, s.catch_up,
       s.catch_up_window_seconds, nullif(s.excluded_dates, '{}'), s.max_count, s.settled_count, s.next_instant, statement_timestamp(),
       v.overlap, v.max_concurrency,
       EXISTS (SELECT FROM jobs_dependency d WHERE d.job_id = s.job_id OFFSET 0)
  FROM jobs_schedule s
  JOIN jobs_job j ON j.id = s.job_id
  JOIN jobs_jobversion v ON v.id = j.current_version_id
 WHERE s.next_fire_at <= statement_timestamp()
 ORDER BY s.next_fire_at
 LIMIT %(limit)s
   FOR NO KEY UPDATE OF s SKIP LOCKED
