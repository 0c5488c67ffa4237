-- logs.read_page and others that read a log. By primary key, attempt_number_once. Where an attempt's log lies, and whether
-- anything may still be added to it: an attempt that was placed and never claimed has none. Without a number: the latest.
SELECT coalesce(a.number, %(attempt)s, 0), (a.claimed_at AT TIME ZONE 'UTC')::date, coalesce(a.log_truncated, false),
       e.ended_at IS NOT NULL OR a.ended_at IS NOT NULL OR coalesce(%(attempt)s < e.attempt, false)
  FROM jobs_execution e
  LEFT JOIN LATERAL (
       SELECT t.number, t.claimed_at, t.ended_at, t.log_truncated
         FROM jobs_attempt t
        WHERE t.execution_id = e.id AND (%(attempt)s::int IS NULL OR t.number = %(attempt)s)
        ORDER BY t.number DESC
        LIMIT 1) a ON true
 WHERE e.id = %(execution_id)s
