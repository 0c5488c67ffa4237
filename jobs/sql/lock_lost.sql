-- transitions.lose_held. Index: execution_active. Taken before the statement that moves them: one that waited here for a
-- claim to commit must see, in a snapshot of its own, the attempt that the claim began.
SELECT e.id
  FROM jobs_execution e
  JOIN unnest(%(worker_ids)s::uuid[]) AS w (id) ON w.id = e.worker_id
 WHERE e.state IN ('queued', 'claimed', 'running')
 ORDER BY e.id
   FOR NO KEY UPDATE OF e
