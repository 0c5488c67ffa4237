-- reaping.reap_lost_workers. Index: execution_active. Workers that took nothing of what has long been placed on them.
-- Taken before the executions, as a renewal does; who holds one just now keeps the others from nothing.
WITH silent AS MATERIALIZED (
    SELECT w.id FROM jobs_worker w
     WHERE w.status = 'online'
       AND EXISTS (SELECT FROM jobs_execution e
                    WHERE e.worker_id = w.id AND e.incarnation = w.incarnation AND e.state = 'queued'
                      AND e.placed_at < statement_timestamp() - make_interval(secs => %(unclaimed_seconds)s))
     ORDER BY w.id FOR NO KEY UPDATE SKIP LOCKED)
UPDATE jobs_worker w SET status = 'suspect' FROM silent WHERE w.id = silent.id
RETURNING w.id
