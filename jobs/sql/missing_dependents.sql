-- dependencies.resolve_dependents. Keys: execution_once_per_run, and the index on jobs_dependency.upstream_id.
-- All that follows, however far, from what ended and has no execution in that run yet: the whole run at once, when its
-- first execution ends, so that from then on an upstream without an execution is one that takes no part in the run.
-- A job with a schedule of its own starts runs of its own. A cancelled or paused one takes part only for the sake of what
-- follows it, which would otherwise not hear of the run.
-- OFFSET 0, here and beside, keeps a lookup by key what it is: how large a run is no statistics know yet.
WITH RECURSIVE missing AS (
    SELECT ended.run_id, d.job_id
      FROM unnest(%(job_ids)s::uuid[], %(run_ids)s::uuid[]) AS ended (job_id, run_id)
      JOIN jobs_dependency d ON d.upstream_id = ended.job_id
     WHERE NOT EXISTS (SELECT FROM jobs_execution e WHERE e.run_id = ended.run_id AND e.job_id = d.job_id OFFSET 0)
       AND NOT EXISTS (SELECT FROM jobs_schedule s WHERE s.job_id = d.job_id AND s.deleted_at IS NULL OFFSET 0)
     UNION
    SELECT m.run_id, d.job_id
      FROM missing m JOIN jobs_dependency d ON d.upstream_id = m.job_id
     WHERE NOT EXISTS (SELECT FROM jobs_schedule s WHERE s.job_id = d.job_id AND s.deleted_at IS NULL OFFSET 0)
)
SELECT m.job_id, m.run_id
  FROM missing m CROSS JOIN LATERAL (SELECT j.state FROM jobs_job j WHERE j.id = m.job_id OFFSET 0) j
 WHERE j.state = 'active' OR EXISTS (SELECT FROM jobs_dependency f WHERE f.upstream_id = m.job_id OFFSET 0)
 ORDER BY m.run_id, m.job_id
