-- name: mark_for_republishing
-- Index: execution_held. The caller that marks a row sends its message; if that fails, the row is due again after
-- a wait that doubles each time.
WITH due AS MATERIALIZED (
    SELECT id FROM jobs_execution
     WHERE phase = 'held' AND state = 'queued' AND placed_at < statement_timestamp() - make_interval(secs => %(republish_seconds)s)
       AND published_at + greatest(make_interval(secs => %(republish_seconds)s), published_at - placed_at)
           < statement_timestamp()
     ORDER BY placed_at LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED)
UPDATE jobs_execution e
   SET published_at = clock_timestamp()
  FROM due, jobs_job j, jobs_worker w
 WHERE e.id = due.id AND j.id = e.job_id AND w.id = e.worker_id AND e.state = 'queued'
RETURNING e.id, e.attempt, e.worker_id, j.name, w.transport
