-- name: report_progress
-- Index: primary key. No index covers `progress`, so the update is HOT. Fenced like append_log.
UPDATE jobs_execution e
   SET progress = jsonb_build_object('attempt', e.attempt, 'percent', %(percent)s::float8, 'message', %(message)s::text,
                                     'at', clock_timestamp())
 WHERE e.id = %(execution_id)s AND e.attempt = %(attempt)s AND e.state IN ('claimed', 'running')
   AND e.worker_id = %(worker_id)s AND e.incarnation = %(incarnation)s

-- name: append_log
-- Indexes: primary key, attempt_number_once. A fenced worker stores nothing; a chunk sent twice is stored once. The first
-- chunk queues the log for indexing and archiving.
-- The attempt counts the bytes actually stored. Chunks over the limit are dropped, except that a mark replaces the last of
-- them, and the attempt is marked as truncated. If that last chunk is stored already, so are all others and none was over
-- the limit. An owner whose storage is full gets only the beginning of each log.
WITH claimed_attempt AS MATERIALIZED (
    SELECT a.id, e.id AS execution_id, e.attempt, e.job_id, j.owner_id, (e.claimed_at AT TIME ZONE 'UTC')::date AS day,
           a.log_bytes, a.log_truncated, f.owner_id IS NOT NULL AS is_full,
           CASE WHEN f.owner_id IS NULL THEN %(max_bytes)s::bigint ELSE %(full_bytes)s::bigint END AS max_bytes
      FROM jobs_execution e
      JOIN jobs_attempt a ON a.execution_id = e.id AND a.number = e.attempt
      JOIN jobs_job j ON j.id = e.job_id
      LEFT JOIN jobs_fullowner f ON f.owner_id = j.owner_id
     WHERE e.id = %(execution_id)s AND e.attempt = %(attempt)s AND e.state IN ('claimed', 'running')
       AND e.worker_id = %(worker_id)s AND e.incarnation = %(incarnation)s
       FOR NO KEY UPDATE OF a
), sent AS MATERIALIZED (
    SELECT c.sequence, c.stream, c.logged_at, c.data,
           NOT h.log_truncated AND c.sequence < %(max_chunks)s
           AND h.log_bytes + sum(octet_length(c.data) + %(chunk_bytes)s) OVER (ORDER BY c.sequence) <= h.max_bytes AS fits
      FROM claimed_attempt h
     CROSS JOIN unnest(%(sequences)s::int[], %(streams)s::text[], %(times)s::timestamptz[], %(data)s::bytea[])
           AS c (sequence, stream, logged_at, data)
), kept AS (
    SELECT sequence, stream, logged_at, data FROM sent WHERE fits
     UNION ALL
    (SELECT t.sequence, 'stderr', t.logged_at,
            convert_to(CASE WHEN h.is_full THEN %(full_mark)s ELSE %(cut_mark)s END, 'UTF8')
       FROM claimed_attempt h CROSS JOIN sent t
      WHERE NOT t.fits AND NOT h.log_truncated
      ORDER BY t.sequence DESC
      LIMIT 1)
), queued AS (
    INSERT INTO jobs_attemptlog (execution_id, attempt, day, owner_id, job_id)
    SELECT execution_id, attempt, day, owner_id, job_id
      FROM claimed_attempt
     WHERE EXISTS (SELECT FROM kept)
        ON CONFLICT DO NOTHING
), written AS (
    INSERT INTO jobs_logchunk (day, execution_id, attempt, sequence, stream, logged_at, data)
    SELECT h.day, h.execution_id, h.attempt, k.sequence, k.stream, k.logged_at, k.data
      FROM claimed_attempt h CROSS JOIN kept k
        ON CONFLICT (day, execution_id, attempt, sequence) DO NOTHING
    RETURNING sequence, octet_length(data) + %(chunk_bytes)s AS size)
UPDATE jobs_attempt a
   SET log_bytes = a.log_bytes + coalesce((SELECT sum(size) FROM written), 0),
       log_truncated = a.log_truncated OR EXISTS (SELECT FROM written w JOIN sent t USING (sequence) WHERE NOT t.fits)
  FROM claimed_attempt h
 WHERE a.id = h.id

-- name: read_log_before
-- Index: primary key of one partition, backwards. Like read_log_after, for the chunks before a sequence.
SELECT sequence, stream, logged_at, data
  FROM (SELECT sequence, stream, logged_at, data,
               sum(octet_length(data)) OVER (ORDER BY sequence DESC) - octet_length(data) AS bytes_after
          FROM (SELECT sequence, stream, logged_at, data
                  FROM jobs_logchunk
                 WHERE day = %(day)s AND execution_id = %(execution_id)s AND attempt = %(attempt)s
                   AND sequence < %(before)s AND (%(stream)s::text IS NULL OR stream = %(stream)s)
                 ORDER BY sequence DESC
                 LIMIT %(max_chunks)s) preceding) summed
 WHERE bytes_after < %(max_bytes)s
 ORDER BY sequence

-- name: read_log_status
-- Indexes: primary key, attempt_number_once. The log's partition and whether chunks may still be appended. An attempt that
-- was placed but never claimed has no log. Without a number: the latest attempt.
SELECT coalesce(a.number, %(attempt)s, 0), (a.claimed_at AT TIME ZONE 'UTC')::date, coalesce(a.log_truncated, false),
       e.ended_at IS NOT NULL OR a.ended_at IS NOT NULL OR coalesce(%(attempt)s < e.attempt, false)
  FROM jobs_execution e
  LEFT JOIN LATERAL (
       SELECT t.number, t.claimed_at, t.ended_at, t.log_truncated
         FROM jobs_attempt t
        WHERE t.execution_id = e.id AND (%(attempt)s::int IS NULL OR t.number = %(attempt)s)
        ORDER BY t.number DESC
        LIMIT 1) a ON true
 WHERE e.id = %(execution_id)s

-- name: read_log_after
-- Index: primary key of one partition. The chunks after a sequence up to max_bytes, but always at least one. octet_length
-- reads a value's size without fetching it.
SELECT sequence, stream, logged_at, data
  FROM (SELECT sequence, stream, logged_at, data,
               sum(octet_length(data)) OVER (ORDER BY sequence) - octet_length(data) AS bytes_before
          FROM (SELECT sequence, stream, logged_at, data
                  FROM jobs_logchunk
                 WHERE day = %(day)s AND execution_id = %(execution_id)s AND attempt = %(attempt)s
                   AND sequence > %(after)s AND (%(stream)s::text IS NULL OR stream = %(stream)s)
                 ORDER BY sequence
                 LIMIT %(max_chunks)s) following) summed
 WHERE bytes_before < %(max_bytes)s
 ORDER BY sequence
