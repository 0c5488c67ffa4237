-- name: rearm_delays
-- By primary key. The fixed delays of finished executions, and when these finished. SKIP LOCKED: finishing an
-- execution does not wait for a transaction that holds its schedule.
SELECT s.id, s.kind, s.expression, s.timezone, s.starts_at, s.ends_at, s.excluded_dates, s.jitter_seconds, s.max_count,
       s.settled_count, e.ended_at
  FROM jobs_execution e
  JOIN jobs_schedule s ON s.id = e.schedule_id AND s.kind = 'delay' AND s.next_instant IS NULL
  JOIN jobs_job j ON j.id = s.job_id AND j.state = 'active'
 WHERE e.id = ANY(%(ids)s::uuid[]) AND e.ended_at IS NOT NULL
 ORDER BY s.id
   FOR NO KEY UPDATE OF s SKIP LOCKED

-- name: read_idle_delays
-- Index: schedule_unarmed_delay, and for each schedule the ones on jobs_execution by job and by instant. Fixed delays
-- without a next instant, ordered by id, and for each whether an unfinished execution will arm it.
SELECT s.id, s.kind, s.expression, s.timezone, s.starts_at, s.ends_at, s.excluded_dates, s.jitter_seconds, s.max_count,
       s.settled_count, last.ended_at, greatest(last.ended_at, version.from_at),
       j.state = 'active' AND NOT EXISTS (
           SELECT FROM jobs_execution e
            WHERE e.job_id = s.job_id AND e.schedule_id = s.id
              AND e.ended_at IS NULL OFFSET 0)
  FROM (SELECT * FROM jobs_schedule
         WHERE kind = 'delay' AND next_instant IS NULL AND deleted_at IS NULL AND quarantined_at IS NULL
           AND id > %(after)s AND (%(only)s::uuid[] IS NULL OR id = ANY(%(only)s::uuid[]))
         ORDER BY id LIMIT %(limit)s) s
 CROSS JOIN LATERAL (SELECT j.state FROM jobs_job j WHERE j.id = s.job_id OFFSET 0) j
  LEFT JOIN LATERAL (SELECT e.ended_at FROM jobs_execution e WHERE e.schedule_id = s.id
                      ORDER BY e.scheduled_for DESC LIMIT 1) last ON true
  LEFT JOIN LATERAL (SELECT v.from_at FROM jobs_scheduleversion v
                      WHERE v.schedule_id = s.id AND v.to_at IS NULL OFFSET 0) version ON true
 ORDER BY s.id
