-- name: create_executions
-- Keys: execution_once_per_instant, execution_once_per_run, execution_retried_once. Insert new executions of any
-- trigger; an instant or run that already has one is left as it is. A run's root is not in execution_once_per_run: only
-- the graph's edits during a run could bring its job again. The version is the one that the row names, or else
-- the job's current one. Rows come as one JSON text: arrays take a driver three times as long, and firing waits for
-- it.
INSERT INTO jobs_execution (
    id, job_id, version_id, schedule_id, queue_id, trigger, run_id, scheduled_for, state, attempt, tries_used,
    times_lost, pinned_worker_id, rank, fired_at, ready_at, ended_at, reason, retry_of, deadline_at)
SELECT n.id, j.id, v.id, n.schedule_id, v.queue_id, n.trigger, coalesce(n.run_id, n.id),
       coalesce(n.scheduled_for, statement_timestamp()), n.state, 0, 0, 0, n.pinned_worker_id,
       statement_timestamp() - make_interval(secs => (q.priority + v.priority) * q.aging_seconds),
       clock_timestamp(),
       CASE WHEN n.state = 'ready' THEN clock_timestamp() END,
       CASE WHEN n.state IN ('missed', 'skipped') THEN clock_timestamp() END,
       n.reason, n.retry_of,
       CASE WHEN n.state NOT IN ('missed', 'skipped')
            THEN clock_timestamp() + make_interval(secs => v.deadline_seconds) END
  FROM json_to_recordset(%(rows)s::json)
       AS n (id uuid, job_id uuid, schedule_id uuid, trigger text, run_id uuid, scheduled_for timestamptz, state text,
             reason text, pinned_worker_id uuid, retry_of uuid, version_id uuid)
  JOIN jobs_job j ON j.id = n.job_id
  JOIN jobs_jobversion v ON v.id = coalesce(n.version_id, j.current_version_id)
  JOIN jobs_queue q ON q.id = v.queue_id
 WHERE n.run_id IS NULL OR NOT EXISTS (SELECT FROM jobs_execution root WHERE root.id = n.run_id AND root.job_id = n.job_id)
    ON CONFLICT DO NOTHING

-- name: unblock_executions
-- By primary key. Unblock or skip dependents whose upstreams have all finished. An execution created while its job
-- moved to another queue follows it: under the lock of the job, or of its schedule, which an edit takes as well.
UPDATE jobs_execution e
   SET state = %(target)s::text,
       ready_at = CASE WHEN %(target)s::text = 'ready' THEN clock_timestamp() END,
       ended_at = CASE WHEN %(target)s::text = 'skipped' THEN clock_timestamp() END,
       reason = CASE WHEN %(target)s::text = 'skipped' THEN 'dependency' END,
       queue_id = q.id,
       rank = statement_timestamp() - make_interval(secs => (q.priority + v.priority) * q.aging_seconds)
  FROM jobs_jobversion v, jobs_job j
  JOIN jobs_jobversion present ON present.id = j.current_version_id
  JOIN jobs_queue q ON q.id = present.queue_id
 WHERE e.id = ANY(%(ids)s::uuid[]) AND e.state = ANY(%(sources)s::text[]) AND v.id = e.version_id AND j.id = e.job_id
RETURNING e.id, e.job_id, e.run_id, e.state

-- name: place_executions
-- By primary key. Under the pool's lock. A worker that registered again or left since it was read gets nothing. The
-- caller sends the message after the commit: published_at records that it will. SKIP LOCKED: a slow cancel or edit of
-- one execution keeps nothing else from being placed. A lookup each: a join would read all executions as long as its
-- plan is from when the table was small.
WITH free AS MATERIALIZED (
    SELECT e.id, a.worker_id, a.incarnation
      FROM (SELECT * FROM json_to_recordset(%(rows)s::json) AS a (execution_id uuid, worker_id uuid, incarnation bigint)
             ORDER BY execution_id) a
     CROSS JOIN LATERAL (
           SELECT e.id FROM jobs_execution e
            WHERE e.id = a.execution_id AND e.state = ANY(%(sources)s::text[])
              FOR NO KEY UPDATE SKIP LOCKED) e)
UPDATE jobs_execution e
   SET state = %(target)s, attempt = e.attempt + 1, worker_id = w.id, incarnation = w.incarnation,
       placed_at = statement_timestamp(), published_at = statement_timestamp(), claimed_at = NULL, started_at = NULL
  FROM free
  JOIN jobs_worker w ON w.id = free.worker_id AND w.incarnation = free.incarnation AND w.status = 'online',
       jobs_job j
 WHERE e.id = free.id AND j.id = e.job_id
RETURNING e.id, e.attempt, e.worker_id, j.name, w.transport

-- name: wake_backed_off
-- Index: execution_backing_off.
WITH due AS MATERIALIZED (
    SELECT id FROM jobs_execution
     WHERE phase = 'backing_off' AND retry_at <= statement_timestamp()
     ORDER BY retry_at LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED)
UPDATE jobs_execution e
   SET state = 'ready', retry_at = NULL, ready_at = clock_timestamp(),
       rank = statement_timestamp() - make_interval(secs => (q.priority + v.priority) * q.aging_seconds)
  FROM due, jobs_jobversion v, jobs_queue q
 WHERE e.id = due.id AND v.id = e.version_id AND q.id = e.queue_id AND e.phase = 'backing_off'

-- name: find_overdue
-- Index: execution_overdue. Executions that waited until their deadline, the longest overdue first. SKIP LOCKED: the
-- next pass finds what another transaction is moving.
SELECT id FROM jobs_execution
 WHERE deadline_at <= statement_timestamp() AND ended_at IS NULL
   AND state IN ('backing_off', 'blocked', 'queued', 'ready') AND id <> ALL(%(excluding)s::uuid[])
 ORDER BY deadline_at LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED

-- name: expire_overdue
-- By primary key. Expire what find_overdue found, unless another transaction has moved it or holds it.
WITH overdue AS MATERIALIZED (
    SELECT id, attempt, state FROM jobs_execution
     WHERE id = ANY(%(ids)s::uuid[]) AND state = ANY(%(sources)s::text[]) AND deadline_at <= statement_timestamp()
     ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
), moved AS (
    UPDATE jobs_execution e
       SET state = %(target)s, reason = 'deadline', dead_letter = 'open', retry_at = NULL, ended_at = clock_timestamp()
      FROM overdue o WHERE e.id = o.id
    RETURNING e.id, e.job_id, e.run_id, e.state
), events AS (
    INSERT INTO jobs_executionevent (id, created_at, execution_id, attempt, name, detail)
    SELECT gen_random_uuid(), clock_timestamp(), o.id, o.attempt, 'execution.expired', jsonb_build_object('was', o.state)
      FROM overdue o)
SELECT id, job_id, run_id, state FROM moved

-- name: return_unclaimed
-- Index: execution_held. Return executions that were placed long ago and never claimed, to be placed again.
WITH stale AS MATERIALIZED (
    SELECT id, attempt, worker_id FROM jobs_execution
     WHERE phase = 'held' AND state = 'queued' AND placed_at < statement_timestamp() - make_interval(secs => %(unclaimed_seconds)s)
     ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), moved AS (
    UPDATE jobs_execution e SET state = 'ready', worker_id = NULL, incarnation = NULL, ready_at = clock_timestamp()
      FROM stale s WHERE e.id = s.id)
INSERT INTO jobs_executionevent (id, created_at, execution_id, attempt, name, detail)
SELECT gen_random_uuid(), clock_timestamp(), id, attempt, 'execution.unclaimed', jsonb_build_object('worker_id', worker_id)
  FROM stale
RETURNING execution_id

-- name: release_from_draining_workers
-- Index: execution_held. Return executions that wait on draining workers, to be placed on others. SKIP LOCKED: one
-- that its worker is just claiming stays there.
WITH held AS MATERIALIZED (
    SELECT e.id, e.attempt, e.worker_id
      FROM jobs_execution e JOIN jobs_worker w ON w.id = e.worker_id
     WHERE e.phase = 'held' AND e.state = ANY(%(sources)s::text[]) AND w.status = 'draining'
     ORDER BY e.id LIMIT %(limit)s FOR NO KEY UPDATE OF e SKIP LOCKED
), moved AS (
    UPDATE jobs_execution e SET state = %(target)s, worker_id = NULL, incarnation = NULL, ready_at = clock_timestamp()
      FROM held h WHERE e.id = h.id)
INSERT INTO jobs_executionevent (id, created_at, execution_id, attempt, name, detail)
SELECT gen_random_uuid(), clock_timestamp(), id, attempt, 'execution.released', jsonb_build_object('worker_id', worker_id)
  FROM held
RETURNING execution_id

-- name: move_to_current_queue
-- By primary key. The caller holds the locks of these executions. Move waiting executions to the current queue of
-- their job, with that queue's rank: two pools placing for one job could each take the last place that its limit
-- leaves.
UPDATE jobs_execution e
   SET queue_id = q.id,
       rank = coalesce(e.ready_at, e.fired_at) - make_interval(secs => (q.priority + v.priority) * q.aging_seconds)
  FROM jobs_job j
  JOIN jobs_jobversion present ON present.id = j.current_version_id
  JOIN jobs_queue q ON q.id = present.queue_id,
       jobs_jobversion v
 WHERE e.id = ANY(%(ids)s::uuid[]) AND e.state IN ('blocked', 'ready', 'backing_off')
   AND j.id = e.job_id AND v.id = e.version_id AND e.queue_id <> q.id

-- name: lock_execution
-- By primary key. Wait for a transaction that holds this execution, unless the fence rejects the caller anyway; the
-- caller's transaction then holds it.
SELECT id FROM jobs_execution
 WHERE id = %(execution_id)s AND attempt = %(attempt)s AND state IN ('queued', 'claimed', 'running')
   AND worker_id = %(worker_id)s AND incarnation = %(incarnation)s
   AND (state <> 'queued'
        OR (cancel_requested_at IS NULL AND (deadline_at IS NULL OR deadline_at > clock_timestamp())))
   FOR NO KEY UPDATE

-- name: lock_attempt
-- Index: attempt_number_once. Wait for a transaction that holds this attempt. Everything locks the execution before it.
SELECT id FROM jobs_attempt WHERE execution_id = %(execution_id)s AND number = %(attempt)s FOR NO KEY UPDATE

-- name: claim_executions
-- By primary key. The fence of a run: one worker, one attempt, not cancelled, not overdue, lease alive. Returns
-- everything that the runs need, so a message is only a hint. A run gets at most the time until its deadline. SKIP
-- LOCKED: a slow cancel or edit of one execution keeps no other from being claimed.
WITH wanted AS MATERIALIZED (
    SELECT e.id, f.attempt_id
      FROM unnest(%(execution_ids)s::uuid[], %(attempts)s::int[], %(worker_ids)s::uuid[], %(incarnations)s::bigint[],
                  %(attempt_ids)s::uuid[]) AS f (execution_id, attempt, worker_id, incarnation, attempt_id)
      JOIN jobs_execution e ON e.id = f.execution_id
     WHERE e.attempt = f.attempt AND e.state = ANY(%(sources)s::text[])
       AND e.worker_id = f.worker_id AND e.incarnation = f.incarnation AND e.cancel_requested_at IS NULL
       AND (e.deadline_at IS NULL OR e.deadline_at > clock_timestamp())
       AND EXISTS (SELECT 1 FROM jobs_worker w
                    WHERE w.id = f.worker_id AND w.incarnation = f.incarnation
                      AND w.lease_until > statement_timestamp())
     ORDER BY e.id
       FOR NO KEY UPDATE OF e SKIP LOCKED
), claimed AS (
    UPDATE jobs_execution e
       SET state = %(target)s, claimed_at = clock_timestamp()
      FROM wanted
     WHERE e.id = wanted.id
    RETURNING e.*, wanted.attempt_id
), attempt AS (
    INSERT INTO jobs_attempt (id, execution_id, number, worker_id, incarnation, placed_at, claimed_at, error, log_truncated)
    SELECT attempt_id, id, attempt, worker_id, incarnation, placed_at, claimed_at, '', false FROM claimed)
SELECT c.id, c.attempt, j.id, j.name, c.run_id, c.scheduled_for, c.claimed_at, v.runtime, v.args::text, v.env::text,
       v.cpu, v.memory_mb, v.disk_mb,
       v.timeout_seconds, a.sha256, a.size, extract(epoch FROM c.deadline_at - c.claimed_at)::float8,
       coalesce((SELECT json_agg(json_build_object('path', i.path, 'sha256', f.sha256, 'size', f.size) ORDER BY i.path)
                   FROM jobs_versioninput i JOIN jobs_artifact f ON f.id = i.artifact_id
                  WHERE i.version_id = v.id), '[]')::text, v.network,
       coalesce((SELECT json_agg(json_build_object('owner', j.owner_id, 'name', g.name, 'env', g.env, 'path', g.path,
                                                   'sealed', encode(s.sealed, 'base64')) ORDER BY g.name, g.env, g.path)
                   FROM jobs_versionsecret g LEFT JOIN jobs_secret s ON s.owner_id = j.owner_id AND s.name = g.name
                  WHERE g.version_id = v.id), '[]')::text
  FROM claimed c
  JOIN jobs_jobversion v ON v.id = c.version_id
  JOIN jobs_artifact a ON a.id = v.artifact_id
  JOIN jobs_job j ON j.id = c.job_id

-- name: start_attempts
-- By primary key and attempt_number_once. Idempotent: a repeated start changes nothing. A worker stores a start a moment
-- after it, and sends how long ago it was. SKIP LOCKED: see claim_executions; a log that is being stored locks its
-- attempt. A lookup each: see place_executions. The fence is compared again so that the planner expects few rows, and
-- updates them by key as well.
WITH begun AS MATERIALIZED (
    SELECT e.id, s.receipt, s.seconds_ago
      FROM (SELECT * FROM json_to_recordset(%(rows)s::json)
                AS s (execution_id uuid, attempt int, worker_id uuid, incarnation bigint, receipt jsonb, seconds_ago float8)
             ORDER BY execution_id) s
     CROSS JOIN LATERAL (
           SELECT e.id, e.worker_id, e.incarnation
             FROM jobs_execution e JOIN jobs_attempt a ON a.execution_id = e.id AND a.number = e.attempt
            WHERE e.id = s.execution_id AND e.attempt = s.attempt
              AND e.state = ANY(%(sources)s::text[] || %(target)s::text)
              AND e.worker_id = s.worker_id AND e.incarnation = s.incarnation
              FOR NO KEY UPDATE OF e, a SKIP LOCKED) e
     WHERE e.worker_id = s.worker_id AND e.incarnation = s.incarnation
), started AS (
    UPDATE jobs_execution e
       SET state = %(target)s,
           started_at = coalesce(e.started_at, greatest(
               e.claimed_at, clock_timestamp() - make_interval(secs => begun.seconds_ago)))
      FROM begun
     WHERE e.id = begun.id
    RETURNING e.id, e.attempt, e.started_at, begun.receipt)
UPDATE jobs_attempt a SET started_at = s.started_at, receipt = s.receipt
  FROM started s WHERE a.execution_id = s.id AND a.number = s.attempt
RETURNING a.execution_id

-- name: succeed_attempts
-- By primary key and attempt_number_once. Finish successes exactly once, each under the full fence, and store the starts
-- that were not stored yet. Only those that nothing requested to cancel and that nothing follows: neither a fixed delay
-- nor dependents. OFFSET 0 and BETWEEN (see count_dependency_edges) keep the lookups by key: else the planner may read
-- all schedules to find one. SKIP LOCKED: see start_attempts.
WITH done AS MATERIALIZED (
    SELECT e.id, r.exit_code, r.result, r.error, r.cpu_seconds, r.peak_memory_bytes, r.peak_disk_bytes,
           r.log_truncated, r.receipt,
           coalesce(e.started_at, greatest(
               e.claimed_at, clock_timestamp() - make_interval(secs => r.started_seconds_ago))) AS started_at
      FROM (SELECT * FROM json_to_recordset(%(rows)s::json)
                AS r (execution_id uuid, attempt int, worker_id uuid, incarnation bigint, exit_code int, result jsonb,
                      error text, cpu_seconds float8, peak_memory_bytes bigint, peak_disk_bytes bigint,
                      log_truncated bool, receipt jsonb, started_seconds_ago float8)
             ORDER BY execution_id) r
     CROSS JOIN LATERAL (
           SELECT e.id, e.started_at, e.claimed_at, e.worker_id, e.incarnation
             FROM jobs_execution e JOIN jobs_attempt a ON a.execution_id = e.id AND a.number = e.attempt
            WHERE e.id = r.execution_id AND e.attempt = r.attempt
              AND e.worker_id = r.worker_id AND e.incarnation = r.incarnation
              AND (e.state = ANY(%(sources)s::text[])
                   OR (r.receipt IS NOT NULL AND e.state = ANY(%(starting)s::text[])))
              AND e.cancel_requested_at IS NULL
              AND NOT EXISTS (SELECT FROM jobs_dependency d WHERE d.upstream_id BETWEEN e.job_id AND e.job_id
                               ORDER BY d.upstream_id OFFSET 0)
              AND NOT EXISTS (SELECT FROM jobs_schedule s WHERE s.id = e.schedule_id AND s.kind = 'delay' OFFSET 0)
              FOR NO KEY UPDATE OF e, a SKIP LOCKED) e
     WHERE e.worker_id = r.worker_id AND e.incarnation = r.incarnation
), ended AS (
    UPDATE jobs_execution e
       SET state = %(target)s, reason = 'exit', exit_code = done.exit_code, signal = NULL, result = done.result,
           tries_used = e.tries_used + 1, started_at = done.started_at, ended_at = clock_timestamp()
      FROM done
     WHERE e.id = done.id
    RETURNING e.id, e.attempt, e.job_id, e.run_id, e.state, e.started_at, done.exit_code, done.error, done.cpu_seconds,
              done.peak_memory_bytes, done.peak_disk_bytes, done.log_truncated, done.receipt
), attempt AS (
    UPDATE jobs_attempt a
       SET started_at = ended.started_at, ended_at = clock_timestamp(), reason = 'exit', exit_code = ended.exit_code,
           error = ended.error, cpu_seconds = ended.cpu_seconds, peak_memory_bytes = ended.peak_memory_bytes,
           peak_disk_bytes = ended.peak_disk_bytes, log_truncated = a.log_truncated OR ended.log_truncated,
           receipt = coalesce(ended.receipt, a.receipt)
      FROM ended WHERE a.execution_id = ended.id AND a.number = ended.attempt)
SELECT id, job_id, run_id, state FROM ended

-- name: finish_attempt
-- By primary key. Finish an attempt exactly once, under the full fence.
WITH ended AS (
    UPDATE jobs_execution e
       SET state = %(target)s::text, reason = %(reason)s::text, exit_code = %(exit_code)s, signal = %(signal)s,
           result = %(result)s::jsonb,
           tries_used = e.tries_used + %(tries)s,
           worker_id = CASE WHEN %(terminal)s::bool THEN e.worker_id END,
           incarnation = CASE WHEN %(terminal)s::bool THEN e.incarnation END,
           ended_at = CASE WHEN %(terminal)s::bool THEN clock_timestamp() END,
           retry_at = CASE WHEN %(target)s::text = 'backing_off'
                           THEN clock_timestamp() + make_interval(secs => %(retry_seconds)s) END,
           dead_letter = CASE WHEN %(target)s::text IN ('failed', 'timed_out') THEN 'open' END,
           ready_at = CASE WHEN %(target)s::text = 'ready' THEN clock_timestamp() ELSE e.ready_at END
     WHERE e.id = %(execution_id)s AND e.attempt = %(attempt)s AND e.state = ANY(%(sources)s::text[])
       AND e.worker_id = %(worker_id)s AND e.incarnation = %(incarnation)s
    RETURNING e.id, e.attempt, e.job_id, e.run_id, e.state
), attempt AS (
    UPDATE jobs_attempt a
       SET ended_at = clock_timestamp(), reason = %(attempt_reason)s::text, exit_code = %(exit_code)s, signal = %(signal)s,
           error = %(error)s, cpu_seconds = %(cpu_seconds)s, peak_memory_bytes = %(peak_memory_bytes)s,
           peak_disk_bytes = %(peak_disk_bytes)s,
           log_truncated = a.log_truncated OR %(log_truncated)s
      FROM ended WHERE a.execution_id = ended.id AND a.number = ended.attempt)
SELECT id, job_id, run_id, state FROM ended

-- name: lock_executions_to_lose
-- Index: execution_held. Lock what these workers hold, except for the given incarnations and later ones, which the
-- caller may not know yet. With a list of what a worker runs: also what that incarnation claimed long ago and does not
-- list (a lost claim or a lost outcome). One page, without executions that failed a moment ago, or only the given
-- ones. Locked in a statement of its own: the move must see, in a new snapshot, an attempt that a claim began
-- meanwhile. SKIP LOCKED: no lock delays the others; the next pass of the reaper, or the next renewal, finds the
-- rest.
SELECT e.id
  FROM jobs_execution e
  JOIN unnest(%(worker_ids)s::uuid[], %(keep_incarnations)s::bigint[]) AS w (id, keep) ON w.id = e.worker_id
 WHERE e.phase = 'held'
   AND (w.keep IS NULL OR e.incarnation < w.keep
        OR (e.incarnation = w.keep AND e.state <> 'queued' AND e.id <> ALL(%(listed)s::uuid[])
            AND e.claimed_at < statement_timestamp() - make_interval(secs => %(unlisted_seconds)s)))
   AND e.id <> ALL(%(excluding)s::uuid[]) AND (%(only)s::uuid[] IS NULL OR e.id = ANY(%(only)s::uuid[]))
 ORDER BY e.id
 LIMIT %(limit)s
   FOR NO KEY UPDATE OF e SKIP LOCKED

-- name: lose_executions
-- By primary key. Move what lock_executions_to_lose has locked: a cancelled execution finishes; one that was never
-- claimed goes back; a claimed one is lost, and goes back if it may be retried. A worker that leaves on purpose has
-- finished its runs: they are released, which no limit counts.
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

-- name: request_cancel
-- By primary key. An unclaimed execution is cancelled at once; a claimed one is marked, and finishes when its worker
-- confirms or is lost, so its resources stay allocated until its processes are gone.
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
