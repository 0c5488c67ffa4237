-- log_retention._note. By primary keys, attempt_number_once. Attempts of one day of whose chunks the archive does not hold
-- all: written by a release that did not note its logs, or committed after the log was taken for complete. Ids grow with time,
-- and are made by a clock that is not the database's: the bounds are an hour wider than the day.
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
