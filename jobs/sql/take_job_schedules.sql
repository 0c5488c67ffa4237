-- firing.settle_job. Index: the one on jobs_schedule.job_id. The due ones of one job, waited for: whoever asks is about to
-- change what is in force, and every instant before that belongs to what was; of what goes on, those whose jittered
-- moment has come.
SELECT s.id, s.job_id, s.kind, s.expression, s.timezone, s.starts_at, s.ends_at, s.jitter_seconds, s.catch_up,
       s.catch_up_window_seconds, nullif(s.excluded_dates, '{}'), s.max_count, s.settled_count, s.next_instant, %(until)s::timestamptz,
       v.overlap, v.max_concurrency,
       EXISTS (SELECT FROM jobs_dependency d WHERE d.job_id = s.job_id OFFSET 0)
  FROM jobs_schedule s
  JOIN jobs_job j ON j.id = s.job_id
  JOIN jobs_jobversion v ON v.id = j.current_version_id
 WHERE s.job_id = %(job_id)s
   AND (s.next_fire_at <= %(until)s::timestamptz
        OR s.next_instant <= %(until)s::timestamptz
           AND (%(ending)s::uuid[] IS NULL OR s.id = ANY(%(ending)s::uuid[])))
 ORDER BY s.id
   FOR NO KEY UPDATE OF s
