-- dependencies.resolve_dependents, after the lock. Key: execution_once_per_run.
-- Upstreams that the run's root does not lead to never take part in this run, so they are not waited for.
-- A job that was cancelled is skipped without waiting.
WITH RECURSIVE blocked AS MATERIALIZED (
    SELECT id, job_id, run_id FROM jobs_execution WHERE id = ANY(%(ids)s::uuid[]) AND state = 'blocked'
), reached AS (
    SELECT DISTINCT b.run_id, root.job_id
      FROM blocked b JOIN jobs_execution root ON root.id = b.run_id
     UNION
    SELECT r.run_id, d.job_id FROM reached r JOIN jobs_dependency d ON d.upstream_id = r.job_id
), judged AS (
    SELECT b.id, j.state = 'active' AS active,
           coalesce(up.state IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'missed', 'skipped'), false) AS ended,
           CASE d.condition WHEN 'success' THEN up.state = 'succeeded'
                            WHEN 'failure' THEN up.state IN ('failed', 'timed_out')
                            ELSE true END AS met
      FROM blocked b
      JOIN jobs_job j ON j.id = b.job_id
      JOIN jobs_dependency d ON d.job_id = b.job_id
      JOIN reached r ON r.run_id = b.run_id AND r.job_id = d.upstream_id
      LEFT JOIN jobs_execution up ON up.run_id = b.run_id AND up.job_id = d.upstream_id
)
SELECT id, bool_and(met) AND active FROM judged GROUP BY id, active HAVING bool_and(ended) OR NOT active
