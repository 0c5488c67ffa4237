-- name: lock_held_attempt
-- By primary key. Lock what decides where the end of an attempt moves its execution.
SELECT e.state, e.tries_used, e.cancel_requested_at IS NOT NULL, v.retry::text, v.delivery,
       extract(epoch FROM e.deadline_at - clock_timestamp())::float8
  FROM jobs_execution e JOIN jobs_jobversion v ON v.id = e.version_id
 WHERE e.id = %(execution_id)s AND e.attempt = %(attempt)s
   AND e.worker_id = %(worker_id)s AND e.incarnation = %(incarnation)s AND e.state IN ('claimed', 'running')
   FOR NO KEY UPDATE OF e
