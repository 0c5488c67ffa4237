-- leases.renew_lease. By primary key. An ended lease is never revived: the worker must register anew.
UPDATE jobs_worker
   SET lease_until = clock_timestamp() + make_interval(secs => %(lease_seconds)s)
 WHERE id = %(worker_id)s AND incarnation = %(incarnation)s AND status IN ('online', 'draining')
   AND lease_until > clock_timestamp()
