-- name: register_worker
-- By the worker's name; a new incarnation fences every older one. Returns no row while another live instance has the
-- same name: if two took turns, each would lose the other's work for ever. For REST workers, the name of a worker that
-- is gone is free to tokens of the same owner in the same pool, and to all once its token is no longer in force. The
-- instance id, which only the worker's own directory knows, proves a restart with a new token.
INSERT INTO jobs_worker (id, name, pool, host, instance, incarnation, status, lease_until, capabilities, details, slots, cpu,
                         memory_mb, disk_mb, resources, transport, token_id, refusal, registered_at)
VALUES (%(id)s, %(name)s, %(pool)s, %(host)s, %(instance)s, 1, 'online',
        clock_timestamp() + make_interval(secs => %(lease_seconds)s), %(capabilities)s::varchar[], %(details)s::jsonb,
        %(slots)s, %(cpu)s, %(memory_mb)s, %(disk_mb)s, %(resources)s::jsonb, %(transport)s, %(token_id)s,
        %(refusal)s, clock_timestamp())
    ON CONFLICT (name) DO UPDATE
   SET pool = excluded.pool, host = excluded.host, instance = excluded.instance, incarnation = jobs_worker.incarnation + 1, status = 'online',
       lease_until = excluded.lease_until, capabilities = excluded.capabilities, details = excluded.details,
       slots = excluded.slots, cpu = excluded.cpu, memory_mb = excluded.memory_mb, disk_mb = excluded.disk_mb,
       resources = excluded.resources, transport = excluded.transport, token_id = excluded.token_id, usage = NULL,
       refusal = excluded.refusal, registered_at = excluded.registered_at
 WHERE jobs_worker.instance = excluded.instance
    OR ((jobs_worker.status NOT IN ('online', 'suspect', 'draining') OR jobs_worker.lease_until <= clock_timestamp())
        AND (excluded.token_id IS NULL OR jobs_worker.token_id = excluded.token_id
             OR (jobs_worker.token_id IS NULL AND jobs_worker.transport = 'rest')
             OR EXISTS (SELECT FROM jobs_apitoken former JOIN jobs_apitoken t ON t.id = excluded.token_id
                         WHERE former.id = jobs_worker.token_id
                           AND (former.revoked_at IS NOT NULL OR former.expires_at <= clock_timestamp()
                                OR (former.owner_id = t.owner_id AND jobs_worker.pool = excluded.pool)))))
RETURNING id, incarnation

-- name: renew_lease
-- By primary key; index: execution_held. A lease that has ended is never revived: the worker must register again. A
-- lease is never shortened: a worker that was granted a longer one may not know yet that leases are shorter now. A
-- suspect that has claimed work since its last report is no longer suspect. Returns whether lock_executions_to_lose
-- (execution/transitions.sql) would find something with the worker's list; reading that waits for no execution's lock.
UPDATE jobs_worker
   SET lease_until = greatest(lease_until, clock_timestamp() + make_interval(secs => %(lease_seconds)s)),
       usage = coalesce(%(usage)s::jsonb || jsonb_build_object('at', clock_timestamp()), usage),
       status = CASE WHEN status = 'suspect'
                          AND (%(usage)s::jsonb ->> 'taken')::bigint > coalesce((usage ->> 'taken')::bigint, 0)
                     THEN 'online' ELSE status END
 WHERE id = %(worker_id)s AND incarnation = %(incarnation)s AND status IN ('online', 'suspect', 'draining')
   AND lease_until > clock_timestamp()
RETURNING EXISTS (
    SELECT FROM jobs_execution e
     WHERE e.worker_id = %(worker_id)s AND e.phase = 'held'
       AND (e.incarnation < %(incarnation)s
            OR (e.incarnation = %(incarnation)s AND e.state <> 'queued' AND e.id <> ALL(%(listed)s::uuid[])
                AND e.claimed_at < statement_timestamp() - make_interval(secs => %(unlisted_seconds)s)))) AS loses

-- name: read_stop_orders
-- Index: primary key. Executions that the worker holds and must stop: cancelled ones, and those that are no longer its
-- own.
SELECT h.execution_id, h.attempt,
       (e.cancel_requested_at IS NOT NULL) AND e.attempt = h.attempt AND e.state IN ('claimed', 'running')
  FROM unnest(%(execution_ids)s::uuid[], %(attempts)s::int[]) AS h (execution_id, attempt)
  LEFT JOIN jobs_execution e ON e.id = h.execution_id
 WHERE e.id IS NULL OR e.attempt <> h.attempt OR e.worker_id IS DISTINCT FROM %(worker_id)s
    OR e.incarnation IS DISTINCT FROM %(incarnation)s OR e.state NOT IN ('queued', 'claimed', 'running')
    OR e.cancel_requested_at IS NOT NULL
