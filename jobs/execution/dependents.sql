-- name: defer_fan_outs
-- Key: fan_out_once. Runs in the transaction that finished or created the upstreams. Each fan-out has two steps:
-- create the executions that the run still lacks, then decide the blocked ones.
INSERT INTO jobs_fanout (id, run_id, job_id, step, after, try_at)
SELECT gen_random_uuid(), f.run_id, f.job_id, s.step, %(after)s, clock_timestamp() + make_interval(secs => %(wait_seconds)s)
  FROM unnest(%(job_ids)s::uuid[], %(run_ids)s::uuid[]) AS f (job_id, run_id)
 CROSS JOIN unnest(%(steps)s::text[]) AS s (step)
    ON CONFLICT (run_id, job_id, step) DO NOTHING

-- name: evaluate_by_instant
-- Keys: execution_once_per_instant, execution_list_by_job, execution_unfinished_of_job. Each execution waits for the
-- latest execution of each upstream at or before its own instant. That one is known once nothing of the upstream, or
-- of what fires it, is still to come at or before that instant. An upstream without an execution by then meets no
-- condition.
WITH RECURSIVE upstream AS MATERIALIZED (
    SELECT c.id, c.instant, c.cancelled, d.upstream_id, d.condition, own.scheduled, latest.instant AS latest_instant,
           latest.state, bool_or(own.pending OR latest.unfinished IS TRUE) OVER (PARTITION BY c.id) AS waits
      FROM (SELECT e.id, e.job_id, e.scheduled_for AS instant, j.state = 'cancelled' AS cancelled
              FROM jobs_execution e CROSS JOIN LATERAL (SELECT j.state FROM jobs_job j WHERE j.id = e.job_id OFFSET 0) j
             WHERE e.id = ANY(%(ids)s::uuid[]) AND e.phase = 'blocked') c
      LEFT JOIN LATERAL (SELECT * FROM jobs_dependency d WHERE d.job_id = c.job_id OFFSET 0) d ON true
     CROSS JOIN LATERAL (
           SELECT coalesce(bool_or(s.deleted_at IS NULL), false) AS scheduled,
                  coalesce(bool_or(s.next_instant <= c.instant), false) AS pending
             FROM jobs_schedule s WHERE s.job_id = d.upstream_id) own
      LEFT JOIN LATERAL (
           SELECT l.instant, l.state, l.id
             FROM jobs_schedule s CROSS JOIN LATERAL (
                  (SELECT e.scheduled_for AS instant, e.state, e.id FROM jobs_execution e
                    WHERE e.schedule_id = s.id AND e.scheduled_for <= c.instant ORDER BY e.scheduled_for DESC LIMIT 1)
                    UNION ALL
                  (SELECT least(r.last, c.instant), 'missed', r.id FROM jobs_droppedrange r
                    WHERE r.schedule_id = s.id AND r.reason = 'catch_up' AND r.first <= c.instant
                    ORDER BY r.first DESC LIMIT 1)) l
            WHERE s.job_id = d.upstream_id
            ORDER BY l.instant DESC, l.id DESC LIMIT 1) fired ON true
      LEFT JOIN LATERAL (
           -- Started by hand or by upstreams: the instant is that of the run. For a job with schedules only executions
           -- newer than its latest instant matter; ids begin with the time, so its history is not read.
           SELECT recent.* FROM (
                  SELECT root.scheduled_for AS instant, e.state, e.id
                    FROM jobs_execution e CROSS JOIN LATERAL (
                         SELECT r.scheduled_for FROM jobs_execution r WHERE r.id = e.run_id OFFSET 0) root
                   WHERE e.job_id = d.upstream_id AND e.schedule_id IS NULL AND root.scheduled_for <= c.instant
                     AND e.id > coalesce(
                         (lpad(to_hex(floor(extract(epoch FROM fired.instant - interval '1 minute') * 1000)::bigint), 12, '0')
                          || repeat('0', 20))::uuid, '00000000-0000-0000-0000-000000000000')
                   ORDER BY e.id DESC LIMIT 50) recent
            ORDER BY recent.instant DESC, recent.id DESC LIMIT 1) other ON true
      LEFT JOIN LATERAL (
           SELECT l.instant, l.state,
                  l.state NOT IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'missed', 'skipped') AS unfinished
             FROM (VALUES (fired.instant, fired.state, fired.id), (other.instant, other.state, other.id))
                  AS l (instant, state, id)
            WHERE l.instant IS NOT NULL ORDER BY l.instant DESC, l.id DESC LIMIT 1) latest ON true
), above AS (
    -- What fires an upstream that has no schedule; only read where nothing else is waited for.
    SELECT u.upstream_id AS given, d.upstream_id AS id
      FROM (SELECT DISTINCT upstream_id FROM upstream WHERE NOT scheduled AND NOT waits) u
     CROSS JOIN LATERAL (SELECT d.upstream_id FROM jobs_dependency d WHERE d.job_id = u.upstream_id OFFSET 0) d
     UNION
    SELECT a.given, d.upstream_id
      FROM above a
     CROSS JOIN LATERAL (SELECT d.upstream_id FROM jobs_dependency d WHERE d.job_id = a.id OFFSET 0) d
     WHERE NOT EXISTS (SELECT FROM jobs_schedule s WHERE s.job_id = a.id AND s.deleted_at IS NULL OFFSET 0)
), firing AS MATERIALIZED (
    SELECT a.given, (SELECT min(s.next_instant) FROM jobs_schedule s WHERE s.job_id = a.id) AS next_instant,
           ARRAY(SELECT root.scheduled_for FROM jobs_execution root
                  WHERE root.job_id = a.id AND root.id = root.run_id
                    AND root.ended_at IS NULL
                  UNION ALL
                 -- The root has finished, and beat is still creating its dependents.
                 SELECT root.scheduled_for FROM jobs_fanout f JOIN jobs_execution root ON root.id = f.run_id
                  WHERE f.step = 'create' AND root.job_id = a.id) AS under_way
      FROM above a
), to_come AS MATERIALIZED (
    SELECT u.id
      FROM upstream u JOIN firing f ON f.given = u.upstream_id
     WHERE f.next_instant <= u.instant
        OR EXISTS (SELECT FROM unnest(f.under_way) AS run (instant)
                    WHERE run.instant <= u.instant AND (u.latest_instant IS NULL OR run.instant > u.latest_instant))
)
SELECT u.id, NOT u.cancelled AND coalesce(bool_and(coalesce(
           CASE u.condition WHEN 'success' THEN u.state = 'succeeded'
                            WHEN 'failure' THEN u.state IN ('failed', 'timed_out')
                            ELSE u.state IS NOT NULL END, false)) FILTER (WHERE u.upstream_id IS NOT NULL), true)
  FROM upstream u
 WHERE u.cancelled OR (NOT u.waits AND u.id NOT IN (SELECT t.id FROM to_come t))
 GROUP BY u.id, u.cancelled

-- name: read_blocked_page
-- Index: execution_blocked.
SELECT id, run_id, trigger = 'schedule' FROM jobs_execution
 WHERE phase = 'blocked' AND id > %(after)s
 ORDER BY id
 LIMIT %(limit)s

-- name: share_lock_jobs
-- By primary keys. Keep what new executions reference from being deleted until the transaction commits; leave out the
-- jobs that another transaction holds.
SELECT j.id
  FROM jobs_job j
  JOIN jobs_jobversion v ON v.id = j.current_version_id
  JOIN jobs_queue q ON q.id = v.queue_id
 WHERE j.id = ANY(%(job_ids)s::uuid[])
   FOR KEY SHARE OF j, v, q SKIP LOCKED

-- name: count_dependency_edges
-- Index: dependency_by_upstream. Count the jobs that depend on each of these jobs, no further than the limit: most
-- have none and cost nothing more. BETWEEN and ORDER BY keep the planner on the index when nearly all edges share one
-- upstream: with '=' it expects any scan to find a row at once, and reads all of them to find none.
SELECT ended.number::int, edges.count::int
  FROM unnest(%(job_ids)s::uuid[]) WITH ORDINALITY AS ended (job_id, number)
 CROSS JOIN LATERAL (
       SELECT count(*) FROM (
              SELECT FROM jobs_dependency d WHERE d.upstream_id BETWEEN ended.job_id AND ended.job_id
               ORDER BY d.upstream_id LIMIT %(limit)s) d) edges
 WHERE edges.count > 0

-- name: find_missing_dependents
-- Keys: execution_once_per_run, dependency_by_upstream. Every job that follows, at any distance, from these executions
-- and has no execution in their run yet. The whole run is created when its first execution finishes, so from then on
-- an upstream without an execution takes no part in the run. A job with its own schedule starts its own runs. A
-- cancelled or paused job takes part only if other jobs depend on it: they would otherwise miss the run. Postgres
-- walks the graph no further than the limit: the caller then creates none of them. OFFSET 0 keeps a lookup by key: no
-- statistics know yet how large a run is.
WITH RECURSIVE missing AS (
    SELECT ended.run_id, d.job_id
      FROM unnest(%(job_ids)s::uuid[], %(run_ids)s::uuid[]) AS ended (job_id, run_id)
      JOIN jobs_dependency d ON d.upstream_id = ended.job_id
     WHERE NOT EXISTS (SELECT FROM jobs_execution e WHERE e.run_id = ended.run_id AND e.job_id = d.job_id
                                                      AND e.run_id <> e.id OFFSET 0)
       AND NOT EXISTS (SELECT FROM jobs_execution e WHERE e.id = ended.run_id AND e.job_id = d.job_id OFFSET 0)
       AND NOT EXISTS (SELECT FROM jobs_schedule s WHERE s.job_id = d.job_id AND s.deleted_at IS NULL OFFSET 0)
     UNION
    SELECT m.run_id, d.job_id
      FROM missing m JOIN jobs_dependency d ON d.upstream_id = m.job_id
     WHERE NOT EXISTS (SELECT FROM jobs_schedule s WHERE s.job_id = d.job_id AND s.deleted_at IS NULL OFFSET 0)
)
SELECT m.job_id, m.run_id,
       j.state = 'active' OR EXISTS (SELECT FROM jobs_dependency f WHERE f.upstream_id BETWEEN m.job_id AND m.job_id
                                      ORDER BY f.upstream_id OFFSET 0)
  FROM (SELECT * FROM missing LIMIT %(limit)s) m
 CROSS JOIN LATERAL (SELECT j.state FROM jobs_job j WHERE j.id = m.job_id OFFSET 0) j
 ORDER BY m.run_id, m.job_id

-- name: find_waiting_dependents
-- Keys: execution_once_per_run, execution_unfinished_of_job. Blocked executions that wait for these, in the same run
-- or by their own instant; once for each upstream. Limited: if the limit is reached, the caller decides none of them.
SELECT e.id, e.run_id, false
  FROM unnest(%(job_ids)s::uuid[], %(run_ids)s::uuid[]) AS ended (job_id, run_id)
  JOIN jobs_dependency d ON d.upstream_id = ended.job_id
 CROSS JOIN LATERAL (
       SELECT e.id, e.run_id, e.phase, e.trigger FROM jobs_execution e
        WHERE e.run_id = ended.run_id AND e.job_id = d.job_id AND e.run_id <> e.id OFFSET 0) e
 WHERE e.phase = 'blocked' AND e.trigger <> 'schedule'
 UNION ALL
SELECT e.id, e.run_id, true
  FROM unnest(%(job_ids)s::uuid[]) AS ended (job_id)
  JOIN jobs_dependency d ON d.upstream_id = ended.job_id
 CROSS JOIN LATERAL (
       SELECT e.id, e.run_id, e.phase, e.trigger FROM jobs_execution e
        WHERE e.job_id = d.job_id
          AND e.ended_at IS NULL OFFSET 0) e
 WHERE e.phase = 'blocked' AND e.trigger = 'schedule'
 LIMIT %(limit)s

-- name: lock_runs
-- No table. A statement of its own: upstreams must be counted after the lock is held. In ascending order, so that two
-- transactions never wait for each other.
SELECT number,
       CASE WHEN %(wait)s THEN pg_advisory_xact_lock(hashtext('punctual.runs'), number)::text IS NOT NULL
            ELSE pg_try_advisory_xact_lock(hashtext('punctual.runs'), number) END
  FROM unnest(%(numbers)s::int[]) AS number

-- name: lock_blocked_executions
-- Index: execution_blocked. Under the locks of the runs. A locked execution is being cancelled, and a locked job may
-- be: skip both, so that nothing becomes ready behind a cancel. Waiting for either could deadlock with a transaction
-- that waits for our runs.
SELECT e.id, e.run_id, e.trigger = 'schedule'
  FROM jobs_execution e JOIN jobs_job j ON j.id = e.job_id
 WHERE e.id = ANY(%(ids)s::uuid[]) AND e.phase = 'blocked'
 ORDER BY e.id
   FOR NO KEY UPDATE OF e SKIP LOCKED
   FOR SHARE OF j SKIP LOCKED

-- name: evaluate_in_runs
-- Key: execution_once_per_run. After the locks of the runs. In a complete run, an upstream without an execution takes
-- no part and is not waited for. Nothing is decided in a run that is still being created; if its creation waits for a
-- locked job (fan_out.ITSELF), only executions whose upstreams are all there are decided. A job that was cancelled or
-- paused is skipped without waiting.
SELECT c.id, c.active AND u.met
  FROM (SELECT e.id, e.job_id, e.run_id, j.state = 'active' AS active
          FROM jobs_execution e CROSS JOIN LATERAL (SELECT j.state FROM jobs_job j WHERE j.id = e.job_id OFFSET 0) j
         WHERE e.id = ANY(%(ids)s::uuid[]) AND e.phase = 'blocked'
           AND e.run_id NOT IN (SELECT f.run_id FROM jobs_fanout f
                                 WHERE f.step = 'create' AND f.after <> 'ffffffff-ffff-ffff-ffff-ffffffffffff')) c
 CROSS JOIN LATERAL (
       SELECT coalesce(bool_and(up.id IS NOT NULL), true) AS complete,
              coalesce(bool_and(up.ended_at IS NOT NULL) FILTER (WHERE up.id IS NOT NULL), true) AS ended,
              coalesce(bool_and(CASE d.condition WHEN 'success' THEN up.state = 'succeeded'
                                                 WHEN 'failure' THEN up.state IN ('failed', 'timed_out')
                                                 ELSE true END) FILTER (WHERE up.id IS NOT NULL), true) AS met
         FROM jobs_dependency d LEFT JOIN LATERAL (
              (SELECT up.id, up.state, up.ended_at FROM jobs_execution up
                WHERE up.run_id = c.run_id AND up.job_id = d.upstream_id AND up.run_id <> up.id OFFSET 0)
                UNION ALL
              (SELECT root.id, root.state, root.ended_at FROM jobs_execution root
                WHERE root.id = c.run_id AND root.job_id = d.upstream_id OFFSET 0)) up ON true
        WHERE d.job_id = c.job_id) u
 WHERE (u.ended OR NOT c.active)
   AND (u.complete OR c.run_id NOT IN (SELECT f.run_id FROM jobs_fanout f WHERE f.step = 'create'))
