-- transitions.place, under the pool's lock. A worker that registered anew or left since it was read gets nothing.
-- Who places it sends its message after the commit: published_at says that somebody has undertaken to.
-- SKIP LOCKED: what somebody is cancelling or editing, however slowly, keeps nothing else from being placed.
WITH free AS MATERIALIZED (
    SELECT e.id, a.worker_id, a.incarnation
      FROM json_to_recordset(%(rows)s::json) AS a (execution_id uuid, worker_id uuid, incarnation bigint)
      JOIN jobs_execution e ON e.id = a.execution_id
     WHERE e.state = ANY(%(sources)s::text[])
     ORDER BY e.id
       FOR NO KEY UPDATE OF e SKIP LOCKED)
UPDATE jobs_execution e
   SET state = %(target)s, attempt = e.attempt + 1, worker_id = w.id, incarnation = w.incarnation,
       placed_at = statement_timestamp(), published_at = statement_timestamp(), claimed_at = NULL, started_at = NULL
  FROM free
  JOIN jobs_worker w ON w.id = free.worker_id AND w.incarnation = free.incarnation AND w.status = 'online',
       jobs_job j
 WHERE e.id = free.id AND j.id = e.job_id
RETURNING e.id, e.attempt, e.worker_id, j.name, w.transport
