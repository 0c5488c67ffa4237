-- name: audit_attempts
-- Read through a cursor. Attempts placed in the range: by primary key (`first` and `last` leave an hour on either side,
-- because ids carry the claiming process's clock). Attempts active at its start: by execution_ended, or by
-- execution_unfinished_of_job. A job's limit is the largest of the versions in force around the placement, because edits
-- have timestamps of another clock.
SELECT a.execution_id::text, a.number, a.placed_at, a.ended_at,
       e.attempt = a.number AND e.state IN ('claimed', 'running'),
       e.job_id::text,
       least(v.max_concurrency,
             (SELECT CASE WHEN bool_or(w.max_concurrency IS NULL) THEN NULL ELSE max(w.max_concurrency) END
                FROM jobs_jobversion w
               WHERE w.job_id = e.job_id AND w.created_at <= a.placed_at + %(tolerance)s::interval
                 AND w.number >= (SELECT coalesce(max(o.number), 0) FROM jobs_jobversion o
                                   WHERE o.job_id = e.job_id AND o.created_at <= a.placed_at - %(tolerance)s::interval))),
       CASE WHEN e.attempt = a.number OR v.queue_id = e.queue_id THEN e.queue_id::text END
  FROM (SELECT a.execution_id, a.number, a.placed_at, a.ended_at
          FROM jobs_attempt a
         WHERE a.id >= %(first)s AND a.id <= %(last)s AND a.placed_at >= %(from)s AND a.placed_at <= %(to)s
         UNION ALL
        SELECT a.execution_id, a.number, a.placed_at, a.ended_at
          FROM jobs_execution x JOIN jobs_attempt a ON a.execution_id = x.id
         WHERE x.ended_at >= %(from)s AND a.placed_at < %(from)s AND (a.ended_at IS NULL OR a.ended_at > %(from)s)
         UNION ALL
        SELECT a.execution_id, a.number, a.placed_at, a.ended_at
          FROM jobs_execution x JOIN jobs_attempt a ON a.execution_id = x.id
         WHERE x.ended_at IS NULL AND x.attempt > 0
           AND a.placed_at < %(from)s AND (a.ended_at IS NULL OR a.ended_at > %(from)s)) a
  JOIN jobs_execution e ON e.id = a.execution_id
  JOIN jobs_jobversion v ON v.id = e.version_id
  JOIN jobs_job j ON j.id = e.job_id
 WHERE (%(owner_id)s::bigint IS NULL OR j.owner_id = %(owner_id)s::bigint)
   AND (%(job_id)s::uuid IS NULL OR e.job_id = %(job_id)s::uuid)
 ORDER BY a.placed_at, a.execution_id, a.number
