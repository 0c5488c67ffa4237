-- name: read_open_backfills
-- Indexes: backfill_by_turn; execution_unfinished_of_job, read up to the limit.
SELECT b.id, b.job_id,
       j.state = 'active' AND (
           SELECT count(*)
             FROM (SELECT FROM jobs_execution e
                    WHERE e.job_id = b.job_id
                      AND e.ended_at IS NULL
                    LIMIT %(max_unfinished)s) unfinished) < %(max_unfinished)s
  FROM (SELECT id, job_id, looked_at FROM jobs_backfill
         WHERE state IN ('pending', 'running')
         ORDER BY looked_at NULLS FIRST, id LIMIT %(limit)s) b
 CROSS JOIN LATERAL (SELECT j.state FROM jobs_job j WHERE j.id = b.job_id OFFSET 0) j
 ORDER BY b.looked_at NULLS FIRST, b.id
