-- webhook_deliveries.Deliverer. Index: webhook_delivery_pending. What is due, of each webhook the first few, and of the
-- owner first who has the fewest on their way and before it here: the limit hides no owner behind what waits for another.
-- From one webhook to the next by the index: what waits for one hides no other's.
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
