-- firing.fire_due_schedules, in the transaction that took these rows and inserted their executions.
UPDATE jobs_schedule s
   SET next_instant = n.next_instant, next_fire_at = n.next_fire_at,
       quarantined_at = CASE WHEN n.error <> '' THEN clock_timestamp() ELSE s.quarantined_at END,
       quarantine_error = CASE WHEN n.error <> '' THEN n.error ELSE s.quarantine_error END
  FROM unnest(%(ids)s::uuid[], %(next_instants)s::timestamptz[], %(next_fire_ats)s::timestamptz[], %(errors)s::text[])
       AS n (id, next_instant, next_fire_at, error)
 WHERE s.id = n.id
