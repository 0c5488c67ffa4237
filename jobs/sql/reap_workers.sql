-- reaping.reap_lost_workers. Compare-and-set on the lease, in the transaction that takes what the workers held.
UPDATE jobs_worker SET status = 'lost'
 WHERE status IN ('online', 'draining') AND lease_until <= clock_timestamp()
RETURNING id
