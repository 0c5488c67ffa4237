-- delays.rearm_delays. By primary key. Fixed delays whose run has ended, and when it did.
SELECT s.id, s.kind, s.expression, s.timezone, s.starts_at, s.ends_at, s.excluded_dates, s.jitter_seconds, s.max_count,
       s.settled_count, e.ended_at
  FROM jobs_execution e
  JOIN jobs_schedule s ON s.id = e.schedule_id AND s.kind = 'delay' AND s.next_instant IS NULL
  JOIN jobs_job j ON j.id = s.job_id AND j.state = 'active'
 WHERE e.id = ANY(%(ids)s::uuid[]) AND e.ended_at IS NOT NULL
 ORDER BY s.id
   FOR NO KEY UPDATE OF s
