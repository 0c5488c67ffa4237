-- dependencies.resolve_dependents. Key: execution_once_per_run. Two upstreams that end at once meet here: the second waits
-- for the first to commit, and only then counts.
SELECT e.id FROM jobs_execution e
  JOIN unnest(%(job_ids)s::uuid[], %(run_ids)s::uuid[]) AS n (job_id, run_id) ON e.run_id = n.run_id AND e.job_id = n.job_id
 WHERE e.state = 'blocked'
 ORDER BY e.id
   FOR NO KEY UPDATE OF e
