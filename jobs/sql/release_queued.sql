-- transitions.release_queued. Index: execution_active. What waits on workers that take nothing new is placed anew, on
-- others. One that its worker is just claiming is left to it.
WITH held AS MATERIALIZED (
    SELECT e.id, e.attempt, e.worker_id
      FROM jobs_execution e JOIN jobs_worker w ON w.id = e.worker_id
     WHERE e.state = ANY(%(sources)s::text[]) AND w.status = 'draining'
     ORDER BY e.id LIMIT %(limit)s FOR NO KEY UPDATE OF e SKIP LOCKED
), moved AS (
    UPDATE jobs_execution e SET state = %(target)s, worker_id = NULL, incarnation = NULL, ready_at = clock_timestamp()
      FROM held h WHERE e.id = h.id)
INSERT INTO jobs_executionevent (id, created_at, execution_id, attempt, name, detail)
SELECT gen_random_uuid(), clock_timestamp(), id, attempt, 'execution.released', jsonb_build_object('worker_id', worker_id)
  FROM held
RETURNING execution_id
