-- leases.read_orders. What the worker holds and must stop: what was cancelled, and what is no longer its own.
SELECT h.execution_id, h.attempt,
       (e.cancel_requested_at IS NOT NULL) AND e.attempt = h.attempt AND e.state IN ('claimed', 'running')
  FROM unnest(%(execution_ids)s::uuid[], %(attempts)s::int[]) AS h (execution_id, attempt)
  LEFT JOIN jobs_execution e ON e.id = h.execution_id
 WHERE e.id IS NULL OR e.attempt <> h.attempt OR e.worker_id IS DISTINCT FROM %(worker_id)s
    OR e.incarnation IS DISTINCT FROM %(incarnation)s OR e.state NOT IN ('queued', 'claimed', 'running')
    OR e.cancel_requested_at IS NOT NULL
