-- webhook_deliveries.Deliverer. By primary key. Two that take at once get different ones; a lease, because whoever took
-- one may die before it says what became of it.
WITH due AS MATERIALIZED (
    SELECT d.id FROM jobs_webhookdelivery d
     WHERE d.id = ANY(%(ids)s::uuid[]) AND d.state = 'pending' AND d.next_try_at <= statement_timestamp()
       FOR UPDATE SKIP LOCKED
)
UPDATE jobs_webhookdelivery d
   SET attempts = d.attempts + 1, tries_left = greatest(d.tries_left - 1, 0), tried_at = clock_timestamp(),
       next_try_at = clock_timestamp() + make_interval(secs => %(lease_seconds)s)
  FROM due WHERE d.id = due.id
RETURNING d.id
