-- transitions.return_unclaimed. Index: execution_active. Published long ago and never taken: to be placed anew.
WITH stale AS MATERIALIZED (
    SELECT id, attempt, worker_id FROM jobs_execution
     WHERE state = 'queued' AND placed_at < statement_timestamp() - make_interval(secs => %(unclaimed_seconds)s)
     ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), moved AS (
    UPDATE jobs_execution e SET state = 'ready', worker_id = NULL, incarnation = NULL, ready_at = clock_timestamp()
      FROM stale s WHERE e.id = s.id)
INSERT INTO jobs_executionevent (id, created_at, execution_id, attempt, name, detail)
SELECT gen_random_uuid(), clock_timestamp(), id, attempt, 'execution.unclaimed', jsonb_build_object('worker_id', worker_id)
  FROM stale
RETURNING execution_id
