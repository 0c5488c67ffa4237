-- transitions.start. By primary key. Said twice, because the first answer got lost, it is said once.
WITH started AS (
    UPDATE jobs_execution e
       SET state = %(target)s, started_at = coalesce(e.started_at, clock_timestamp())
     WHERE e.id = %(execution_id)s AND e.attempt = %(attempt)s AND e.state = ANY(%(sources)s::text[] || %(target)s::text)
       AND e.worker_id = %(worker_id)s AND e.incarnation = %(incarnation)s
    RETURNING e.id, e.attempt, e.started_at)
UPDATE jobs_attempt a SET started_at = s.started_at, receipt = %(receipt)s::jsonb
  FROM started s WHERE a.execution_id = s.id AND a.number = s.attempt
