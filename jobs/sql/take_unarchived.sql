-- log_archiving._take. Index: attempt_log_unarchived; by primary key, attempt_number_once. Logs that are complete and not
-- archived, the oldest first, and how much there is of each: in one partition, by its key alone. What runs is passed over.
SELECT l.day, l.execution_id, l.attempt, l.log_truncated, w.chunks, w.last
  FROM (SELECT l.day, l.execution_id, l.attempt, a.log_truncated
          FROM jobs_attemptlog l
          JOIN jobs_attempt a ON a.execution_id = l.execution_id AND a.number = l.attempt
         WHERE l.pack_id IS NULL AND l.settled_at IS NULL
           AND (l.day, l.execution_id, l.attempt) > (%(day)s::date, %(execution_id)s::uuid, %(attempt)s::int)
           AND a.ended_at < statement_timestamp() - make_interval(secs => %(complete_seconds)s)
           AND coalesce(l.archive_failed_at < statement_timestamp() - make_interval(secs => %(retry_seconds)s), true)
         ORDER BY l.day, l.execution_id, l.attempt
         LIMIT %(limit)s) l
 CROSS JOIN LATERAL (
       SELECT count(*) AS chunks, coalesce(max(c.sequence), -1) AS last
         FROM jobs_logchunk c
        WHERE c.day = l.day AND c.execution_id = l.execution_id AND c.attempt = l.attempt) w
 ORDER BY l.day, l.execution_id, l.attempt
