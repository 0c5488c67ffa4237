-- logs.append_chunks, for workers over HTTP. By primary key, attempt_number_once. As append_log; and what an attempt may
-- write in all is counted beside it, whatever its worker says: from the first chunk on that is too much the rest is left out,
-- and the attempt says so. Half as long again as append_log: ours have a cap of their own, and are spared it.
WITH held AS MATERIALIZED (
    SELECT a.id, e.id AS execution_id, e.attempt, e.job_id, (e.claimed_at AT TIME ZONE 'UTC')::date AS day,
           a.log_bytes, a.log_truncated
      FROM jobs_execution e
      JOIN jobs_attempt a ON a.execution_id = e.id AND a.number = e.attempt
     WHERE e.id = %(execution_id)s AND e.attempt = %(attempt)s AND e.state IN ('claimed', 'running')
       AND e.worker_id = %(worker_id)s AND e.incarnation = %(incarnation)s
       FOR NO KEY UPDATE OF a
), told AS MATERIALIZED (
    SELECT c.sequence, c.stream, c.logged_at, c.data,
           NOT h.log_truncated AND c.sequence < %(max_chunks)s
           AND h.log_bytes + sum(octet_length(c.data)) OVER (ORDER BY c.sequence) <= %(max_bytes)s AS fits
      FROM held h
     CROSS JOIN unnest(%(sequences)s::int[], %(streams)s::text[], %(times)s::timestamptz[], %(data)s::bytea[])
           AS c (sequence, stream, logged_at, data)
), noted AS (
    INSERT INTO jobs_attemptlog (execution_id, attempt, day, owner_id, job_id)
    SELECT h.execution_id, h.attempt, h.day, j.owner_id, h.job_id
      FROM held h JOIN jobs_job j ON j.id = h.job_id
     WHERE EXISTS (SELECT FROM told WHERE fits)
        ON CONFLICT DO NOTHING
), written AS (
    INSERT INTO jobs_logchunk (day, execution_id, attempt, sequence, stream, logged_at, data)
    SELECT h.day, h.execution_id, h.attempt, t.sequence, t.stream, t.logged_at, t.data
      FROM held h CROSS JOIN told t
     WHERE t.fits
        ON CONFLICT (day, execution_id, attempt, sequence) DO NOTHING
    RETURNING octet_length(data) AS size)
UPDATE jobs_attempt a
   SET log_bytes = a.log_bytes + coalesce((SELECT sum(size) FROM written), 0),
       log_truncated = a.log_truncated OR EXISTS (SELECT FROM told WHERE NOT fits)
  FROM held h
 WHERE a.id = h.id
