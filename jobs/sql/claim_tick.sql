-- duties.claim_tick. By primary key. Compare-and-set, before the task is sent: one that another beat has sent meanwhile, or
-- that is no longer ours to send, is left alone, and one that is sent is remembered even if we die of it. That a lease has
-- ended does not matter until another beat has taken it.
UPDATE django_celery_beat_periodictask t
   SET last_run_at = %(at)s, total_run_count = t.total_run_count + 1
  FROM jobs_beatlease held
 WHERE t.id = %(task_id)s AND t.enabled AND (t.last_run_at IS NULL OR t.last_run_at = %(last_run_at)s)
   AND held.duty = %(duty)s AND held.holder = %(holder)s
