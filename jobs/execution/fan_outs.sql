-- name: lock_due_fan_outs
-- Index: fan_out_due. Lock the fan-outs of one step that have waited longest. Nothing is decided in a run that is
-- still being created; if its creation waits for a locked job (fan_out.ITSELF), evaluate_in_runs finds what can be
-- decided all the same.
SELECT f.id, f.run_id, f.job_id, f.after
  FROM jobs_fanout f
 WHERE f.try_at <= statement_timestamp() AND f.step = %(step)s
   AND (f.step = 'create' OR f.run_id NOT IN (
           SELECT c.run_id FROM jobs_fanout c WHERE c.step = 'create' AND c.after <> 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
 ORDER BY f.try_at, f.id
 LIMIT %(limit)s
   FOR NO KEY UPDATE OF f SKIP LOCKED

-- name: read_fan_out_page
-- Index: dependency_by_upstream. The next dependents of these fan-outs, in order; each index scan starts where the
-- fan-out's last page ended. BETWEEN: as in count_dependency_edges.
SELECT f.number::int, f.run_id, d.job_id
  FROM unnest(%(run_ids)s::uuid[], %(job_ids)s::uuid[], %(after)s::uuid[]) WITH ORDINALITY AS f (run_id, job_id, after, number)
 CROSS JOIN LATERAL (
       SELECT d.job_id FROM jobs_dependency d
        WHERE d.upstream_id BETWEEN f.job_id AND f.job_id AND d.job_id > f.after
        ORDER BY d.upstream_id, d.job_id LIMIT %(limit)s) d
 ORDER BY f.number, d.job_id
 LIMIT %(limit)s

-- name: find_missing_in_runs
-- Keys: execution_once_per_run, dependency_by_upstream. The jobs of a page that belong to these runs, by the rules of
-- find_missing_dependents, and have no execution there yet; and whether other jobs depend on them. BETWEEN: as in
-- count_dependency_edges.
SELECT DISTINCT j.id, page.run_id, follows.any
  FROM unnest(%(job_ids)s::uuid[], %(run_ids)s::uuid[]) AS page (job_id, run_id)
 CROSS JOIN LATERAL (SELECT j.id, j.state FROM jobs_job j WHERE j.id = page.job_id OFFSET 0) j
 CROSS JOIN LATERAL (
       SELECT EXISTS (SELECT FROM jobs_dependency f WHERE f.upstream_id BETWEEN j.id AND j.id
                       ORDER BY f.upstream_id OFFSET 0) AS any) follows
 WHERE NOT EXISTS (SELECT FROM jobs_execution e WHERE e.run_id = page.run_id AND e.job_id = j.id
                                                  AND e.run_id <> e.id OFFSET 0)
   AND NOT EXISTS (SELECT FROM jobs_execution e WHERE e.id = page.run_id AND e.job_id = j.id OFFSET 0)
   AND NOT EXISTS (SELECT FROM jobs_schedule s WHERE s.job_id = j.id AND s.deleted_at IS NULL OFFSET 0)
   AND (j.state = 'active' OR follows.any)
 ORDER BY page.run_id, j.id

-- name: find_waiting_in_runs
-- Keys: execution_once_per_run, execution_unfinished_of_job. Blocked executions of these jobs, in these runs or by
-- their own instant. The latter are limited: the sweep finds the others.
SELECT e.id, e.run_id, false
  FROM unnest(%(job_ids)s::uuid[], %(run_ids)s::uuid[]) AS page (job_id, run_id)
 CROSS JOIN LATERAL (
       SELECT e.id, e.run_id, e.phase, e.trigger FROM jobs_execution e
        WHERE e.run_id = page.run_id AND e.job_id = page.job_id AND e.run_id <> e.id OFFSET 0) e
 WHERE e.phase = 'blocked' AND e.trigger <> 'schedule'
 UNION
(SELECT e.id, e.run_id, true
  FROM unnest(%(job_ids)s::uuid[]) AS page (job_id)
 CROSS JOIN LATERAL (
       SELECT e.id, e.run_id, e.phase, e.trigger FROM jobs_execution e
        WHERE e.job_id = page.job_id
          AND e.ended_at IS NULL OFFSET 0) e
 WHERE e.phase = 'blocked' AND e.trigger = 'schedule'
 LIMIT %(limit)s)

-- name: reschedule_fan_outs
-- By primary key. Set where a fan-out continues and when; it goes to the end of the line.
UPDATE jobs_fanout
   SET after = coalesce(%(after)s, after), try_at = clock_timestamp() + make_interval(secs => %(wait_seconds)s)
 WHERE id = ANY(%(ids)s::uuid[])
