-- name: acquire_leader_lease
-- By primary key. Compare-and-set: already mine, or expired.
INSERT INTO jobs_beatlease AS held (duty, holder, lease_until)
VALUES (%(duty)s, %(holder)s, clock_timestamp() + make_interval(secs => %(lease_seconds)s))
    ON CONFLICT (duty) DO UPDATE SET holder = excluded.holder, lease_until = excluded.lease_until
 WHERE held.holder = excluded.holder OR held.lease_until < clock_timestamp()

-- name: claim_tick
-- By primary key. Compare-and-set before the task is sent: fails if another beat has sent it or holds the lease, and
-- records the task even if sending it kills this beat. An expired lease counts until another beat has acquired it.
UPDATE django_celery_beat_periodictask t
   SET last_run_at = %(at)s, total_run_count = t.total_run_count + 1
  FROM jobs_beatlease held
 WHERE t.id = %(task_id)s AND t.enabled AND (t.last_run_at IS NULL OR t.last_run_at = %(last_run_at)s)
   AND held.duty = %(duty)s AND held.holder = %(holder)s
