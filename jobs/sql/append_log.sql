-- logs.append_chunks. By primary key. A worker whose attempt was given away writes nothing; a repeated chunk is one chunk.
-- With the first chunk the log is noted as one that there is to index and to archive.
WITH held AS MATERIALIZED (
    SELECT e.id, e.attempt, e.job_id, (e.claimed_at AT TIME ZONE 'UTC')::date AS day
      FROM jobs_execution e
     WHERE e.id = %(execution_id)s AND e.attempt = %(attempt)s AND e.state IN ('claimed', 'running')
       AND e.worker_id = %(worker_id)s AND e.incarnation = %(incarnation)s
), noted AS (
    INSERT INTO jobs_attemptlog (execution_id, attempt, day, owner_id, job_id)
    SELECT h.id, h.attempt, h.day, j.owner_id, h.job_id
      FROM held h JOIN jobs_job j ON j.id = h.job_id
     WHERE 0 = ANY(%(sequences)s::int[])
        ON CONFLICT DO NOTHING
)
INSERT INTO jobs_logchunk (day, execution_id, attempt, sequence, stream, logged_at, data)
SELECT h.day, h.id, h.attempt, c.sequence, c.stream, c.logged_at, c.data
  FROM held h
 CROSS JOIN unnest(%(sequences)s::int[], %(streams)s::text[], %(times)s::timestamptz[], %(data)s::bytea[])
       AS c (sequence, stream, logged_at, data)
    ON CONFLICT (day, execution_id, attempt, sequence) DO UPDATE SET sequence = excluded.sequence
