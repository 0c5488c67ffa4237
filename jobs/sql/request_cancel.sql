-- transitions.cancel. By primary key. What no worker has taken ends at once; what one runs is marked, and ends when that
-- worker confirms or is lost, so that its resources stay allocated until its processes are gone.
WITH target AS MATERIALIZED (
    SELECT id, attempt, state FROM jobs_execution
     WHERE id = ANY(%(ids)s::uuid[]) AND state = ANY(%(sources)s::text[]) AND cancel_requested_at IS NULL
     ORDER BY id FOR NO KEY UPDATE
), moved AS (
    UPDATE jobs_execution e
       SET cancel_requested_at = clock_timestamp(),
           state = CASE WHEN t.state IN ('claimed', 'running') THEN e.state ELSE %(target)s END,
           reason = CASE WHEN t.state IN ('claimed', 'running') THEN e.reason ELSE 'cancelled' END,
           retry_at = NULL,
           ended_at = CASE WHEN t.state IN ('claimed', 'running') THEN NULL ELSE clock_timestamp() END
      FROM target t WHERE e.id = t.id
    RETURNING e.id, e.job_id, e.run_id, e.state,
              CASE WHEN t.state IN ('claimed', 'running') THEN e.worker_id END AS held_by
), events AS (
    INSERT INTO jobs_executionevent (id, created_at, execution_id, attempt, name, detail)
    SELECT gen_random_uuid(), clock_timestamp(), t.id, t.attempt, 'execution.cancel_requested',
           jsonb_build_object('by', %(by)s::text)
      FROM target t)
SELECT id, job_id, run_id, state, held_by FROM moved
