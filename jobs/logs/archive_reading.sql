-- name: find_archived_logs
-- Indexes: primary keys. The log's place in the archive, and whether its chunks are still in Postgres: they are dropped
-- all at once, so checking the last one is enough.
SELECT l.pack_id, l.pack_offset, l.pack_length, l.archived_to,
       EXISTS (SELECT FROM jobs_logchunk c
                WHERE c.day = l.day AND c.execution_id = l.execution_id AND c.attempt = l.attempt
                  AND c.sequence = l.archived_to)
  FROM jobs_attemptlog l
 WHERE l.execution_id = %(execution_id)s AND l.attempt = %(attempt)s AND l.pack_id IS NOT NULL
