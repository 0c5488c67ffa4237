-- name: settle_logs
-- Index: attempt_log_unsettled. Logs that are archived and fully indexed; the next run settles locked ones.
WITH settled AS MATERIALIZED (
    SELECT execution_id, attempt
      FROM jobs_attemptlog
     WHERE settled_at IS NULL AND pack_id IS NOT NULL AND indexed_at IS NOT NULL
     ORDER BY day
     LIMIT %(limit)s
       FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE jobs_attemptlog l
   SET settled_at = statement_timestamp()
  FROM settled d
 WHERE l.execution_id = d.execution_id AND l.attempt = d.attempt

-- name: read_unarchived_logs
-- Indexes: attempt_log_unarchived, primary key, attempt_number_once. Complete logs that are not archived, oldest first,
-- with their number of chunks, counted by an index-only scan of one partition. Logs of running attempts are skipped.
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

-- name: record_packed_logs
-- Index: primary key. Skips logs that another archiver has recorded meanwhile; indexed logs are settled at once.
-- A fixed lock order keeps two archivers from deadlocking.
WITH free AS MATERIALIZED (
    SELECT l.execution_id, l.attempt, p.pack_offset, p.pack_length, p.archived_to
      FROM unnest(%(execution_ids)s::uuid[], %(attempts)s::int[], %(offsets)s::bigint[], %(lengths)s::bigint[],
                  %(lasts)s::int[]) AS p (execution_id, attempt, pack_offset, pack_length, archived_to)
      JOIN jobs_attemptlog l ON l.execution_id = p.execution_id AND l.attempt = p.attempt
     WHERE l.pack_id IS NULL AND l.settled_at IS NULL
     ORDER BY l.execution_id, l.attempt
       FOR NO KEY UPDATE OF l
)
UPDATE jobs_attemptlog l
   SET pack_id = %(pack_id)s, pack_offset = f.pack_offset, pack_length = f.pack_length, archived_to = f.archived_to,
       archive_failed_at = NULL,
       settled_at = CASE WHEN l.indexed_at IS NOT NULL THEN statement_timestamp() END
  FROM free f
 WHERE l.execution_id = f.execution_id AND l.attempt = f.attempt

-- name: read_chunks_to_pack
-- Index: primary key of one partition per log. The chunks of many logs, log by log, from the end of the last page up to
-- max_bytes, but always at least one. octet_length reads a value's size without fetching it.
SELECT n, sequence, stream, logged_at, data
  FROM (SELECT n, sequence, stream, logged_at, data,
               sum(octet_length(data)) OVER (ORDER BY n, sequence) - octet_length(data) AS bytes_before
          FROM (SELECT w.n, c.sequence, c.stream, c.logged_at, c.data
                  FROM unnest(%(days)s::date[], %(execution_ids)s::uuid[], %(attempts)s::int[])
                       WITH ORDINALITY AS w (day, execution_id, attempt, n)
                 CROSS JOIN LATERAL (
                       SELECT c.sequence, c.stream, c.logged_at, c.data
                         FROM jobs_logchunk c
                        WHERE c.day = w.day AND c.execution_id = w.execution_id AND c.attempt = w.attempt
                          AND c.sequence > CASE WHEN w.n = 1 THEN %(after)s ELSE -1 END
                        ORDER BY c.sequence
                        LIMIT %(max_chunks)s) c
                 ORDER BY w.n, c.sequence
                 LIMIT %(max_chunks)s) following) summed
 WHERE bytes_before < %(max_bytes)s
 ORDER BY n, sequence
