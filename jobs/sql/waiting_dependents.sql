-- dependencies.resolve_dependents. Keys: execution_once_per_run, execution_unfinished_by_job. What waits for those that
-- ended: in the same run, or by an instant of its own.
SELECT e.id, e.run_id, false
  FROM unnest(%(job_ids)s::uuid[], %(run_ids)s::uuid[]) AS ended (job_id, run_id)
  JOIN jobs_dependency d ON d.upstream_id = ended.job_id
 CROSS JOIN LATERAL (
       SELECT e.id, e.run_id, e.state, e.trigger FROM jobs_execution e
        WHERE e.run_id = ended.run_id AND e.job_id = d.job_id OFFSET 0) e
 WHERE e.state = 'blocked' AND e.trigger <> 'schedule'
 UNION
SELECT e.id, e.run_id, true
  FROM unnest(%(job_ids)s::uuid[]) AS ended (job_id)
  JOIN jobs_dependency d ON d.upstream_id = ended.job_id
 CROSS JOIN LATERAL (
       SELECT e.id, e.run_id, e.state, e.trigger FROM jobs_execution e
        WHERE e.job_id = d.job_id
          AND e.state IN ('backing_off', 'blocked', 'claimed', 'queued', 'ready', 'running') OFFSET 0) e
 WHERE e.state = 'blocked' AND e.trigger = 'schedule'
