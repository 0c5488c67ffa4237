-- name: mark_suspect_workers
-- Index: execution_held. Mark workers that claimed nothing of what was placed on them long ago. Workers are
-- locked before executions, as in a renewal; SKIP LOCKED: one locked worker does not hold up the others.
WITH silent AS MATERIALIZED (
    SELECT w.id FROM jobs_worker w
     WHERE w.status = 'online'
       AND (w.id, w.incarnation) IN (
           SELECT e.worker_id, e.incarnation FROM jobs_execution e
            WHERE e.phase = 'held' AND e.state = 'queued'
              AND e.placed_at < statement_timestamp() - make_interval(secs => %(unclaimed_seconds)s))
     ORDER BY w.id FOR NO KEY UPDATE SKIP LOCKED)
UPDATE jobs_worker w SET status = 'suspect' FROM silent WHERE w.id = silent.id
RETURNING w.id

-- name: write_reaper_stamp
-- By primary key. Returns true if this pass follows a gap: the database or every beat was away.
INSERT INTO jobs_reaperstamp AS s (id, stamped_at, unbroken_since) VALUES (1, clock_timestamp(), clock_timestamp())
    ON CONFLICT (id) DO UPDATE
   SET stamped_at = greatest(s.stamped_at, excluded.stamped_at),
       unbroken_since = CASE WHEN s.stamped_at < excluded.stamped_at - make_interval(secs => %(gap_seconds)s)
                             THEN excluded.stamped_at ELSE s.unbroken_since END
RETURNING unbroken_since = stamped_at

-- name: detect_failover
-- By primary key. Index: worker_living. True for one lease, the longest that a worker was granted, after the database
-- was promoted or restored: its timeline differs from the one that a beat saw last, and it may not know claims that
-- the former primary confirmed. Those runs end within that lease, because their workers learn it with the next
-- renewal, or cannot renew. The timeline is the first eight digits of a WAL file's name; unlike pg_control_checkpoint
-- these are current right after a promotion.
WITH present AS MATERIALIZED (
    SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint AS timeline, clock_timestamp() AS moment
), granted AS (
    -- From a worker's last renewal or registration until its lease ends; without usage reports that may be the longest lease.
    SELECT max(w.lease_until - coalesce((w.usage ->> 'at')::timestamptz, w.registered_at)) AS longest
      FROM jobs_worker w WHERE w.status IN ('online', 'suspect', 'draining')
), changed AS (
    UPDATE jobs_reaperstamp s
       SET timeline = p.timeline,
           placement_resumes_at = CASE WHEN s.timeline IS NULL THEN s.placement_resumes_at
                                       ELSE p.moment + greatest(
                                            make_interval(secs => %(lease_seconds)s),
                                            least((SELECT g.longest FROM granted g), make_interval(secs => %(max_lease_seconds)s))) END,
           unbroken_since = CASE WHEN s.timeline IS NULL THEN s.unbroken_since ELSE p.moment END
      FROM present p
     WHERE s.timeline IS DISTINCT FROM p.timeline
    RETURNING s.placement_resumes_at)
SELECT coalesce((SELECT c.placement_resumes_at FROM changed c), s.placement_resumes_at) > p.moment IS TRUE,
       (SELECT extract(epoch FROM c.placement_resumes_at - p.moment)::float8 FROM changed c WHERE c.placement_resumes_at > p.moment)
  FROM jobs_reaperstamp s, present p

-- name: mark_lost_workers
-- Index: worker_living. Compare-and-set on the lease, before the worker's executions are reclaimed. No worker is
-- reaped for one lease after a gap, its own or that of beats: no worker could renew while the database was away. The
-- clock is read once: if the database froze between reading the stamp and reading the leases, every lease would seem
-- to have ended. SKIP LOCKED: a locked worker is renewing or being reaped.
WITH present AS MATERIALIZED (SELECT clock_timestamp() AS moment
), ended AS MATERIALIZED (
    SELECT w.id
      FROM jobs_worker w, present p, jobs_reaperstamp s
     WHERE w.status IN ('online', 'suspect', 'draining') AND w.lease_until <= p.moment
       AND s.stamped_at >= p.moment - make_interval(secs => %(gap_seconds)s)
       AND s.unbroken_since <= p.moment - greatest(
           make_interval(secs => %(lease_seconds)s),
           -- The lease that it was granted: see detect_failover.
           least(w.lease_until - coalesce((w.usage ->> 'at')::timestamptz, w.registered_at),
                 make_interval(secs => %(max_lease_seconds)s)))
     ORDER BY w.id
     LIMIT %(limit)s
       FOR NO KEY UPDATE OF w SKIP LOCKED)
UPDATE jobs_worker w SET status = 'lost' WHERE w.id = ANY(ARRAY(SELECT ended.id FROM ended))
RETURNING w.id

-- name: find_orphaned_workers
-- Index: execution_held. Workers that are lost, gone or registered again while executions are still placed on an
-- earlier incarnation: a placement raced a registration, or a row was locked when it was to be reclaimed. Returns the
-- first incarnation to keep: the workers are not locked, and may register and claim meanwhile. One index lookup for
-- each worker that holds something, however much; none for a worker that holds nothing. In no order, so that workers
-- whose executions cannot be reclaimed do not block those behind them.
WITH RECURSIVE oldest (worker_id, incarnation) AS (
    (SELECT e.worker_id, e.incarnation FROM jobs_execution e
      WHERE e.phase = 'held'
      ORDER BY e.worker_id, e.incarnation LIMIT 1)
    UNION ALL
    SELECT next.worker_id, next.incarnation
      FROM oldest
     CROSS JOIN LATERAL (
           SELECT e.worker_id, e.incarnation FROM jobs_execution e
            WHERE e.phase = 'held' AND e.worker_id > oldest.worker_id
            ORDER BY e.worker_id, e.incarnation LIMIT 1) next)
SELECT w.id, keep.incarnation, w.status = 'offline'
  FROM oldest
 CROSS JOIN LATERAL (SELECT * FROM jobs_worker WHERE id = oldest.worker_id OFFSET 0) w
 CROSS JOIN LATERAL (SELECT w.incarnation + (w.status NOT IN ('online', 'suspect', 'draining'))::int AS incarnation) keep
 WHERE oldest.incarnation < keep.incarnation
 ORDER BY random()
 LIMIT %(limit)s
