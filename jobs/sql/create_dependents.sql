-- dependencies.resolve_dependents. Index: the one on jobs_dependency.upstream_id. Which jobs follow those that ended.
SELECT DISTINCT d.job_id, ended.run_id
  FROM unnest(%(job_ids)s::uuid[], %(run_ids)s::uuid[]) AS ended (job_id, run_id)
  JOIN jobs_dependency d ON d.upstream_id = ended.job_id
  JOIN jobs_job j ON j.id = d.job_id AND j.state = 'active'
 ORDER BY d.job_id
