-- transitions.place, under the pool's lock. A worker that registered anew or left since it was read gets nothing.
-- Who places it sends its message after the commit: published_at says that somebody has undertaken to.
UPDATE jobs_execution e
   SET state = %(target)s, attempt = e.attempt + 1, worker_id = w.id, incarnation = w.incarnation,
       placed_at = statement_timestamp(), published_at = statement_timestamp(), claimed_at = NULL, started_at = NULL
  FROM json_to_recordset(%(rows)s::json) AS a (execution_id uuid, worker_id uuid, incarnation bigint)
  JOIN jobs_worker w ON w.id = a.worker_id AND w.incarnation = a.incarnation AND w.status = 'online',
       jobs_job j
 WHERE e.id = a.execution_id AND e.state = ANY(%(sources)s::text[]) AND j.id = e.job_id
RETURNING e.id, e.attempt, e.worker_id, j.name, w.transport
