-- claiming.take_work. Index: execution_active. What is placed on the worker and not taken yet; and what it has taken without
-- knowing it, because the answer got lost: it does not list that, and never started it.
SELECT e.id, e.attempt, e.state = 'claimed'
  FROM jobs_execution e
 WHERE e.worker_id = %(worker_id)s AND e.incarnation = %(incarnation)s AND e.state IN ('queued', 'claimed')
   AND e.cancel_requested_at IS NULL AND (e.state = 'queued' OR e.id <> ALL(%(listed)s::uuid[]))
 ORDER BY e.placed_at, e.id LIMIT %(limit)s
