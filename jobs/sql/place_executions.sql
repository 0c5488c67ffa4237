-- transitions.place, under the pool's lock. A worker that registered anew or left since it was read gets nothing.
UPDATE jobs_execution e
   SET state = %(target)s, attempt = e.attempt + 1, worker_id = w.id, incarnation = w.incarnation,
       placed_at = clock_timestamp(), published_at = NULL, claimed_at = NULL, started_at = NULL
  FROM unnest(%(execution_ids)s::uuid[], %(worker_ids)s::uuid[], %(incarnations)s::bigint[])
       AS a (execution_id, worker_id, incarnation)
  JOIN jobs_worker w ON w.id = a.worker_id AND w.incarnation = a.incarnation AND w.status = 'online'
 WHERE e.id = a.execution_id AND e.state = ANY(%(sources)s::text[])
