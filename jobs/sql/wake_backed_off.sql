-- transitions.wake_backed_off. Index: execution_backing_off.
WITH due AS MATERIALIZED (
    SELECT id FROM jobs_execution
     WHERE state = 'backing_off' AND retry_at <= statement_timestamp()
     ORDER BY retry_at LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED)
UPDATE jobs_execution e
   SET state = 'ready', retry_at = NULL, ready_at = clock_timestamp(),
       rank = statement_timestamp() - make_interval(secs => (q.priority + v.priority) * q.aging_seconds)
  FROM due, jobs_jobversion v, jobs_queue q
 WHERE e.id = due.id AND v.id = e.version_id AND q.id = e.queue_id AND e.state = 'backing_off'
