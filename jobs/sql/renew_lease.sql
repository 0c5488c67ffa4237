-- leases.renew_lease. By primary key. An ended lease is never revived: the worker must register anew.
-- A suspect that has taken a message since it last told how many it took is one no longer.
UPDATE jobs_worker
   SET lease_until = clock_timestamp() + make_interval(secs => %(lease_seconds)s),
       usage = coalesce(%(usage)s::jsonb || jsonb_build_object('at', clock_timestamp()), usage),
       status = CASE WHEN status = 'suspect'
                          AND (%(usage)s::jsonb ->> 'taken')::bigint > coalesce((usage ->> 'taken')::bigint, 0)
                     THEN 'online' ELSE status END
 WHERE id = %(worker_id)s AND incarnation = %(incarnation)s AND status IN ('online', 'suspect', 'draining')
   AND lease_until > clock_timestamp()
