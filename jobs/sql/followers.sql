-- dependencies.resolve_dependents. Index: the one on jobs_dependency.upstream_id. Which jobs follow those that ended.
-- A cancelled one has a part in a run only for the sake of what follows it, which would wait for it forever.
-- The share lock waits for a cancel of such a job, so that nothing of it is created behind the cancel's back.
SELECT d.job_id, ended.run_id
  FROM unnest(%(job_ids)s::uuid[], %(run_ids)s::uuid[]) AS ended (job_id, run_id)
  JOIN jobs_dependency d ON d.upstream_id = ended.job_id
  JOIN jobs_job j ON j.id = d.job_id
 WHERE j.state = 'active' OR EXISTS (SELECT 1 FROM jobs_dependency f WHERE f.upstream_id = j.id)
 ORDER BY d.job_id
   FOR SHARE OF j
