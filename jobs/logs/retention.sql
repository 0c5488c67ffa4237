-- name: mark_unarchived
-- Indexes: primary keys, attempt_number_once. Queue the attempts of one day with chunks that the archive lacks, such as
-- chunks committed after the log counted as complete. Ids grow with time, but by a clock other than the database's: the
-- bounds are an hour wider than the day.
INSERT INTO jobs_attemptlog AS known (execution_id, attempt, day, owner_id, job_id)
SELECT a.execution_id, a.number, %(day)s, j.owner_id, e.job_id
  FROM jobs_attempt a
  JOIN jobs_execution e ON e.id = a.execution_id
  JOIN jobs_job j ON j.id = e.job_id
  LEFT JOIN jobs_attemptlog l ON l.execution_id = a.execution_id AND l.attempt = a.number
 WHERE a.id >= %(from_id)s AND a.id < %(to_id)s AND (a.claimed_at AT TIME ZONE 'UTC')::date = %(day)s
   AND (l.execution_id IS NULL OR l.settled_at IS NOT NULL)
   AND EXISTS (SELECT FROM jobs_logchunk c
                WHERE c.day = %(day)s AND c.execution_id = a.execution_id AND c.attempt = a.number
                  AND c.sequence > coalesce(l.archived_to, -1))
    ON CONFLICT (execution_id, attempt) DO UPDATE
   SET pack_id = NULL, pack_offset = NULL, pack_length = NULL, archived_to = NULL, indexed_at = NULL,
       settled_at = NULL

-- name: empty_default_logs
-- Indexes: primary keys. Empties the (small) default partitions by whole logs: a reader must never find half a log.
-- Unsettled logs stay; a log without a row in jobs_attemptlog was pruned.
WITH old AS MATERIALIZED (
    SELECT DISTINCT c.day, c.execution_id, c.attempt
      FROM (SELECT day, execution_id, attempt FROM jobs_logchunk_default WHERE day < %(before)s
             UNION ALL
            SELECT day, execution_id, attempt FROM jobs_logsegment_default WHERE day < %(before)s) c
     WHERE NOT EXISTS (SELECT FROM jobs_attemptlog l
                        WHERE l.execution_id = c.execution_id AND l.attempt = c.attempt AND l.settled_at IS NULL)
     LIMIT %(limit)s
), segments AS (
    DELETE FROM jobs_logsegment_default s USING old o
     WHERE s.day = o.day AND s.execution_id = o.execution_id AND s.attempt = o.attempt
)
DELETE FROM jobs_logchunk_default c USING old o
 WHERE c.day = o.day AND c.execution_id = o.execution_id AND c.attempt = o.attempt
