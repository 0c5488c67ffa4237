-- name: read_unindexed_logs
-- Indexes: attempt_log_unindexed, attempt_number_once.
-- The logs that may have more to index, from an execution on. Complete: the attempt ended long enough ago that every
-- chunk in flight has been stored.
SELECT l.execution_id, l.attempt, l.day, l.owner_id, l.job_id, l.indexed_to, l.stdout_carry, l.stderr_carry,
       a.id IS NULL OR coalesce(a.ended_at < statement_timestamp() - make_interval(secs => %(complete_seconds)s), false)
  FROM jobs_attemptlog l
  LEFT JOIN jobs_attempt a ON a.execution_id = l.execution_id AND a.number = l.attempt
 WHERE l.indexed_at IS NULL AND l.execution_id >= %(cursor)s
 ORDER BY l.execution_id, l.attempt
 LIMIT %(limit)s

-- name: read_unindexed_chunks
-- Index: primary key of the chunks. The next chunks of each log, in the order of the logs, limited per log and in total.
-- In a growing log a missing chunk may still arrive, so the chunks after a gap wait.
SELECT execution_id, attempt, sequence, stream, logged_at, data
  FROM (SELECT n, execution_id, attempt, sequence, stream, logged_at, data,
               sum(octet_length(data)) OVER (ORDER BY n, sequence) - octet_length(data) AS bytes_before
          FROM (SELECT l.n, l.execution_id, l.attempt, c.sequence, c.stream, c.logged_at, c.data
                  FROM unnest(%(days)s::date[], %(executions)s::uuid[], %(attempts)s::int[], %(reached)s::int[],
                              %(complete)s::bool[])
                       WITH ORDINALITY AS l (day, execution_id, attempt, indexed_to, complete, n)
                 CROSS JOIN LATERAL (
                       SELECT f.*, row_number() OVER (ORDER BY f.sequence) AS number
                         FROM (SELECT c.sequence, c.stream, c.logged_at, c.data
                                 FROM jobs_logchunk c
                                WHERE c.day = l.day AND c.execution_id = l.execution_id AND c.attempt = l.attempt
                                  AND c.sequence > l.indexed_to
                                ORDER BY c.sequence
                                LIMIT %(chunks_each)s) f) c
                 WHERE l.complete OR c.sequence = l.indexed_to + c.number
                 ORDER BY l.n, c.sequence
                 LIMIT %(max_chunks)s) following) summed
 WHERE bytes_before < %(max_bytes)s
 ORDER BY n, sequence

-- name: record_indexed
-- Index: primary key. Compare-and-set on indexed_to: nothing is indexed twice.
UPDATE jobs_attemptlog l
   SET indexed_to = n.indexed_to, stdout_carry = n.stdout_carry, stderr_carry = n.stderr_carry,
       indexed_at = CASE WHEN n.complete THEN statement_timestamp() END
  FROM unnest(%(executions)s::uuid[], %(attempts)s::int[], %(from)s::int[], %(to)s::int[], %(stdout)s::bytea[],
              %(stderr)s::bytea[], %(complete)s::boolean[])
       AS n (execution_id, attempt, indexed_from, indexed_to, stdout_carry, stderr_carry, complete)
 WHERE l.execution_id = n.execution_id AND l.attempt = n.attempt AND l.indexed_to = n.indexed_from
