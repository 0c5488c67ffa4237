-- transitions.unblock and transitions.skip, for dependents whose upstreams have all ended. One that was created while its job
-- was moved to another queue follows it: under the job's lock, or that of its schedule, which an edit takes, too.
UPDATE jobs_execution e
   SET state = %(target)s,
       ready_at = CASE WHEN %(target)s = 'ready' THEN clock_timestamp() END,
       ended_at = CASE WHEN %(target)s = 'skipped' THEN clock_timestamp() END,
       reason = CASE WHEN %(target)s = 'skipped' THEN 'dependency' END,
       queue_id = q.id,
       rank = statement_timestamp() - make_interval(secs => (q.priority + v.priority) * q.aging_seconds)
  FROM jobs_jobversion v, jobs_job j
  JOIN jobs_jobversion present ON present.id = j.current_version_id
  JOIN jobs_queue q ON q.id = present.queue_id
 WHERE e.id = ANY(%(ids)s::uuid[]) AND e.state = ANY(%(sources)s::text[]) AND v.id = e.version_id AND j.id = e.job_id
RETURNING e.id, e.job_id, e.run_id, e.state
