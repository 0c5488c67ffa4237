-- firing.fire_due_schedules, in the transaction that took these rows and inserted their executions.
UPDATE jobs_schedule s
   SET next_instant = n.next_instant, next_fire_at = coalesce(n.next_fire_at, n.next_instant), settled_count = s.settled_count + n.settled,
       quarantined_at = CASE WHEN n.error <> '' THEN clock_timestamp() ELSE s.quarantined_at END,
       quarantine_error = CASE WHEN n.error <> '' THEN n.error ELSE s.quarantine_error END
  FROM json_to_recordset(%(rows)s::json)
       AS n (id uuid, next_instant timestamptz, next_fire_at timestamptz, settled int, error text)
 WHERE s.id = n.id
