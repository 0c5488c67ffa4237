-- transitions.expire_overdue. Index: execution_overdue. What waited until its deadline ends; what somebody else is moving is
-- looked at again in the next pass. The states are written out, or the planner could not use the index.
WITH overdue AS MATERIALIZED (
    SELECT id, attempt, state FROM jobs_execution
     WHERE deadline_at <= statement_timestamp() AND deadline_at IS NOT NULL
       AND state IN ('backing_off', 'blocked', 'queued', 'ready')
     ORDER BY deadline_at LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), moved AS (
    UPDATE jobs_execution e
       SET state = %(target)s, reason = 'deadline', dead_letter = 'open', retry_at = NULL, ended_at = clock_timestamp()
      FROM overdue o WHERE e.id = o.id AND e.state = ANY(%(sources)s::text[])
    RETURNING e.id, e.job_id, e.run_id, e.state
), events AS (
    INSERT INTO jobs_executionevent (id, created_at, execution_id, attempt, name, detail)
    SELECT gen_random_uuid(), clock_timestamp(), o.id, o.attempt, 'execution.expired', jsonb_build_object('was', o.state)
      FROM overdue o)
SELECT id, job_id, run_id, state FROM moved
