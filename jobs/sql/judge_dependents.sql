-- dependencies.resolve_dependents, after the locks, and the sweep. Key: execution_once_per_run.
-- The run is complete: an upstream without an execution in it takes no part in it and is not waited for.
-- A job that was cancelled or paused is skipped without waiting.
SELECT c.id, c.active AND u.met
  FROM (SELECT e.id, e.job_id, e.run_id, j.state = 'active' AS active
          FROM jobs_execution e CROSS JOIN LATERAL (SELECT j.state FROM jobs_job j WHERE j.id = e.job_id OFFSET 0) j
         WHERE e.id = ANY(%(ids)s::uuid[]) AND e.state = 'blocked') c
 CROSS JOIN LATERAL (
       SELECT coalesce(bool_and(up.ended_at IS NOT NULL), true) AS ended,
              coalesce(bool_and(CASE d.condition WHEN 'success' THEN up.state = 'succeeded'
                                                 WHEN 'failure' THEN up.state IN ('failed', 'timed_out')
                                                 ELSE true END), true) AS met
         FROM jobs_dependency d CROSS JOIN LATERAL (
              SELECT up.state, up.ended_at FROM jobs_execution up
               WHERE up.run_id = c.run_id AND up.job_id = d.upstream_id OFFSET 0) up
        WHERE d.job_id = c.job_id) u
 WHERE u.ended OR NOT c.active
