-- leases.register_worker. By the worker's name; a new incarnation fences every older one off.
-- No row comes back while another instance of that name lives: two that took turns would lose each other's work for ever.
-- Over HTTP, the name of a worker that has gone is its token's alone until that token is revoked; the instance, which is
-- known to the worker's own directory and to nobody else, proves a restart with a new token.
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
             OR EXISTS (SELECT FROM jobs_apitoken t WHERE t.id = jobs_worker.token_id AND t.revoked_at IS NOT NULL)))
RETURNING id, incarnation
