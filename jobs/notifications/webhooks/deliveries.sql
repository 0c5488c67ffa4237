-- name: find_due_deliveries
-- Index: webhook_delivery_pending. The first due deliveries of each webhook, ordered so that owners with the fewest in
-- flight come first: the limit hides no owner behind another's backlog. The recursion skips from webhook to webhook in
-- the index, so a backlog of one webhook costs the others nothing.
WITH RECURSIVE waiting AS (
    (SELECT d.webhook_id FROM jobs_webhookdelivery d WHERE d.state = 'pending' ORDER BY d.webhook_id LIMIT 1)
    UNION ALL
    SELECT (SELECT d.webhook_id FROM jobs_webhookdelivery d
             WHERE d.state = 'pending' AND d.webhook_id > waiting.webhook_id ORDER BY d.webhook_id LIMIT 1)
      FROM waiting WHERE waiting.webhook_id IS NOT NULL
)
SELECT due.id, w.owner_id, w.host
  FROM waiting
  JOIN jobs_webhook w ON w.id = waiting.webhook_id
 CROSS JOIN LATERAL (
    SELECT d.id, d.next_try_at, row_number() OVER (ORDER BY d.next_try_at) AS place
      FROM jobs_webhookdelivery d
     WHERE d.webhook_id = w.id AND d.state = 'pending' AND d.next_try_at <= statement_timestamp()
     ORDER BY d.next_try_at
     LIMIT %(each)s) AS due
  LEFT JOIN unnest(%(owners)s::int[], %(on_the_way)s::int[]) AS busy (owner_id, count) ON busy.owner_id = w.owner_id
 ORDER BY coalesce(busy.count, 0)
          + row_number() OVER (PARTITION BY w.owner_id ORDER BY due.place, due.next_try_at), due.next_try_at
 LIMIT %(limit)s

-- name: lease_deliveries
-- By primary key. Concurrent senders lease different deliveries; a lease expires if its sender dies.
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

-- name: record_delivery_answers
-- By primary key. Compare-and-set on the attempt: a later try by another sender wins.
UPDATE jobs_webhookdelivery d
   SET state = o.state, status_code = o.status_code, error = o.error, response = o.response,
       next_try_at = clock_timestamp() + make_interval(secs => o.retry_seconds),
       ended_at = CASE WHEN o.state <> 'pending' THEN clock_timestamp() END
  FROM json_to_recordset(%(rows)s::json)
       AS o (id uuid, attempts int, state text, retry_seconds float8, status_code int, error text, response text)
 WHERE d.id = o.id AND d.attempts = o.attempts AND d.state = 'pending'
RETURNING d.id
