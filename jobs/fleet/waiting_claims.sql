-- name: find_changed_claims
-- Index: primary keys, execution_held. Positions of the waiting claims that must read again: the worker is gone, began
-- or ended a drain, or its token is no longer in force; something is placed on it, or claimed and not listed (see
-- find_placed_work); or it holds something that it must stop (see read_stop_orders).
WITH claim AS MATERIALIZED (
    SELECT c.position, c.worker_id, c.incarnation, c.online, w.status,
           w.id IS NOT NULL AS entitled
      FROM unnest(%(worker_ids)s::uuid[], %(incarnations)s::bigint[], %(token_ids)s::uuid[], %(online)s::boolean[])
           WITH ORDINALITY AS c (worker_id, incarnation, token_id, online, position)
      LEFT JOIN (jobs_worker w
                 JOIN jobs_apitoken t ON t.id = w.token_id AND t.revoked_at IS NULL
                      AND (t.expires_at IS NULL OR t.expires_at > statement_timestamp())
                 JOIN auth_user u ON u.id = t.owner_id AND u.is_active AND (u.is_staff OR t.scope <> 'worker'))
        ON w.id = c.worker_id AND w.incarnation = c.incarnation AND w.token_id = c.token_id
           AND w.lease_until > statement_timestamp() AND w.status NOT IN ('lost', 'offline')
), held AS MATERIALIZED (
    SELECT h.position, h.execution_id, h.attempt
      FROM unnest(%(held_by)s::bigint[], %(execution_ids)s::uuid[], %(attempts)s::int[])
           AS h (position, execution_id, attempt))
SELECT c.position::int FROM claim c
 WHERE NOT c.entitled OR (c.status <> 'draining') <> c.online
    OR EXISTS (SELECT FROM jobs_execution e
                WHERE e.worker_id = c.worker_id AND e.incarnation = c.incarnation AND e.phase = 'held'
                  AND e.state IN ('queued', 'claimed') AND e.cancel_requested_at IS NULL
                  AND CASE e.state WHEN 'queued' THEN c.online
                                   ELSE NOT EXISTS (SELECT FROM held h
                                                     WHERE h.position = c.position AND h.execution_id = e.id) END)
 UNION
SELECT h.position::int
  FROM held h
  JOIN claim c ON c.position = h.position
  LEFT JOIN jobs_execution e ON e.id = h.execution_id
 WHERE e.id IS NULL OR e.attempt <> h.attempt OR e.worker_id IS DISTINCT FROM c.worker_id
    OR e.incarnation IS DISTINCT FROM c.incarnation OR e.state NOT IN ('queued', 'claimed', 'running')
    OR e.cancel_requested_at IS NOT NULL
