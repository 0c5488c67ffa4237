-- transitions.lose_held and lose_unlisted. By primary key. What lock_lost has found and locked is taken from its workers:
-- a cancelled one ends; one that was never claimed goes back; a claimed one is lost, and goes back if it may be tried again.
-- A worker that leaves on purpose has ended its runs: they are released, which no limit counts.
WITH held AS MATERIALIZED (
    SELECT e.id, e.attempt, e.worker_id, e.incarnation, e.state AS was,
           CASE WHEN e.cancel_requested_at IS NOT NULL THEN 'cancelled'
                WHEN e.state = 'queued' THEN 'ready'
                WHEN v.delivery = 'at_most_once' THEN 'failed'
                WHEN %(reason)s = 'lost' AND e.times_lost + 1 >= %(max_times_lost)s THEN 'failed'
                ELSE 'ready' END AS becomes
      FROM jobs_execution e
      JOIN jobs_jobversion v ON v.id = e.version_id
     WHERE e.id = ANY(%(ids)s::uuid[])
), moved AS (
    UPDATE jobs_execution e
       SET state = h.becomes,
           reason = CASE h.becomes WHEN 'failed' THEN %(reason)s WHEN 'cancelled' THEN 'cancelled' END,
           dead_letter = CASE h.becomes WHEN 'failed' THEN 'open' END,
           times_lost = e.times_lost + CASE WHEN h.was = 'queued' OR %(reason)s <> 'lost' THEN 0 ELSE 1 END,
           worker_id = CASE WHEN h.becomes = 'ready' THEN NULL ELSE e.worker_id END,
           incarnation = CASE WHEN h.becomes = 'ready' THEN NULL ELSE e.incarnation END,
           ready_at = CASE WHEN h.becomes = 'ready' THEN clock_timestamp() ELSE e.ready_at END,
           ended_at = CASE WHEN h.becomes = 'ready' THEN NULL ELSE clock_timestamp() END
      FROM held h WHERE e.id = h.id
    RETURNING e.id, e.job_id, e.run_id, e.state
), attempts AS (
    UPDATE jobs_attempt a SET ended_at = clock_timestamp(), reason = %(reason)s
      FROM held h WHERE a.execution_id = h.id AND a.number = h.attempt AND h.was <> 'queued'
), events AS (
    INSERT INTO jobs_executionevent (id, created_at, execution_id, attempt, name, detail)
    SELECT gen_random_uuid(), clock_timestamp(), h.id, h.attempt, 'execution.' || %(reason)s,
           jsonb_build_object('worker_id', h.worker_id, 'incarnation', h.incarnation, 'was', h.was, 'now', h.becomes)
      FROM held h)
SELECT id, job_id, run_id, state FROM moved
