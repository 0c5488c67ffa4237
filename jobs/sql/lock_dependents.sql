-- dependencies.resolve_dependents, and the sweep, under the locks of the runs. Index: execution_blocked.
-- What somebody else holds is being cancelled; a job that somebody holds may be: nothing of it becomes ready behind the
-- cancel's back. To wait for either could be to wait for one who waits for our runs.
SELECT e.id, e.run_id, e.trigger = 'schedule'
  FROM jobs_execution e JOIN jobs_job j ON j.id = e.job_id
 WHERE e.id = ANY(%(ids)s::uuid[]) AND e.state = 'blocked'
 ORDER BY e.id
   FOR NO KEY UPDATE OF e SKIP LOCKED
   FOR SHARE OF j SKIP LOCKED
