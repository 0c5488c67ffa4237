-- reaping.reap_lost_workers. Compare-and-set on the lease, in the transaction that takes what the workers held; none is
-- reaped for one lease after a gap, for while the database was away nobody could renew. The clock is read once: were the
-- database frozen between a look at the stamp and a look at the leases, every lease would seem to have ended.
-- SKIP LOCKED: one that somebody holds is renewing, or is reaped by another beat, or by the next pass.
WITH present AS MATERIALIZED (SELECT clock_timestamp() AS moment
), ended AS MATERIALIZED (
    SELECT w.id
      FROM jobs_worker w, present p, jobs_reaperstamp s
     WHERE w.status IN ('online', 'suspect', 'draining') AND w.lease_until <= p.moment
       AND s.stamped_at >= p.moment - make_interval(secs => %(gap_seconds)s)
       AND s.unbroken_since <= p.moment - make_interval(secs => %(lease_seconds)s)
     ORDER BY w.id
       FOR NO KEY UPDATE OF w SKIP LOCKED)
UPDATE jobs_worker w SET status = 'lost' FROM ended WHERE w.id = ended.id
RETURNING w.id
