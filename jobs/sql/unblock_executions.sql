-- transitions.unblock and transitions.skip, for dependents whose upstreams have all ended.
UPDATE jobs_execution e
   SET state = %(target)s,
       ready_at = CASE WHEN %(target)s = 'ready' THEN clock_timestamp() END,
       ended_at = CASE WHEN %(target)s = 'skipped' THEN clock_timestamp() END,
       reason = CASE WHEN %(target)s = 'skipped' THEN 'dependency' END,
       rank = statement_timestamp() - make_interval(secs => (q.priority + v.priority) * q.aging_seconds)
  FROM jobs_jobversion v, jobs_queue q
 WHERE e.id = ANY(%(ids)s::uuid[]) AND e.state = ANY(%(sources)s::text[]) AND v.id = e.version_id AND q.id = e.queue_id
RETURNING e.id, e.job_id, e.run_id, e.state
