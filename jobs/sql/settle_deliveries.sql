-- webhook_deliveries.settle_answers. By primary key. Compare-and-set on the attempt: what somebody else has sent since is
-- theirs to settle.
UPDATE jobs_webhookdelivery d
   SET state = o.state, status_code = o.status_code, error = o.error, response = o.response,
       next_try_at = clock_timestamp() + make_interval(secs => o.retry_seconds),
       ended_at = CASE WHEN o.state <> 'pending' THEN clock_timestamp() END
  FROM json_to_recordset(%(rows)s::json)
       AS o (id uuid, attempts int, state text, retry_seconds float8, status_code int, error text, response text)
 WHERE d.id = o.id AND d.attempts = o.attempts AND d.state = 'pending'
RETURNING d.id
