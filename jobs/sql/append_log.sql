-- logs.append_chunks. By primary key. A worker whose attempt was given away writes nothing; a repeated chunk is one chunk.
INSERT INTO jobs_logchunk (day, execution_id, attempt, sequence, stream, logged_at, data)
SELECT (e.claimed_at AT TIME ZONE 'UTC')::date, e.id, e.attempt, c.sequence, c.stream, c.logged_at, c.data
  FROM jobs_execution e
 CROSS JOIN unnest(%(sequences)s::int[], %(streams)s::text[], %(times)s::timestamptz[], %(data)s::bytea[])
       AS c (sequence, stream, logged_at, data)
 WHERE e.id = %(execution_id)s AND e.attempt = %(attempt)s AND e.state IN ('claimed', 'running')
   AND e.worker_id = %(worker_id)s AND e.incarnation = %(incarnation)s
    ON CONFLICT (day, execution_id, attempt, sequence) DO UPDATE SET sequence = excluded.sequence
