-- name: prune_executions
-- By keys: attempt_number_once, output_name_once_per_attempt, webhook_delivery_once, the primary keys.
-- Deletes everything that belongs to `expired` executions, and the executions in `deleted` themselves.
WITH outputs AS (
    DELETE FROM jobs_output o USING jobs_attempt a
     WHERE o.attempt_id = a.id AND a.execution_id = ANY(%(expired)s::uuid[])
), logs AS (
    DELETE FROM jobs_attemptlog WHERE execution_id = ANY(%(expired)s::uuid[])
), deliveries AS (
    DELETE FROM jobs_webhookdelivery WHERE execution_id = ANY(%(expired)s::uuid[])
), attempts AS (
    DELETE FROM jobs_attempt WHERE execution_id = ANY(%(expired)s::uuid[])
)
DELETE FROM jobs_execution WHERE id = ANY(%(deleted)s::uuid[]) AND ended_at IS NOT NULL

-- name: read_retention_page
-- Indexes: the primary key, execution_once_per_run, execution_list_by_job, execution_once_per_instant,
-- execution_unfinished_of_job. Ids grow with time, so the oldest executions come first.
-- Everything that an unfinished execution may still read stays: its run, and all of its upstreams if it is blocked by an
-- instant. The row of a job's last execution stays because it is the job's status; the last of a schedule, or of a job
-- without one and the root of its run, because the next dependent reads it. greatest() keeps the planner from searching a
-- later execution of the same job by primary key: for an inactive job there is none, and it would read them all.
WITH page AS MATERIALIZED (
    SELECT e.id, e.job_id, e.schedule_id, e.run_id, e.scheduled_for, e.ended_at
      FROM jobs_execution e
     WHERE e.id > %(after)s AND e.id < %(bound)s
     ORDER BY e.id
     LIMIT %(limit)s
), unfinished AS MATERIALIZED (
    SELECT run.run_id
      FROM (SELECT DISTINCT run_id FROM page) AS run
     WHERE EXISTS (SELECT FROM jobs_execution u
                    WHERE u.run_id = run.run_id AND u.run_id <> u.id AND u.ended_at IS NULL OFFSET 0)
        OR (SELECT root.ended_at IS NULL FROM jobs_execution root WHERE root.id = run.run_id)
), waited_for AS MATERIALIZED (
    SELECT DISTINCT d.upstream_id
      FROM (SELECT DISTINCT job_id FROM page) AS job
      JOIN jobs_dependency d ON d.upstream_id = job.job_id
      JOIN jobs_execution b ON b.job_id = d.job_id
     WHERE b.phase = 'blocked' AND b.trigger = 'schedule'
)
SELECT p.id,
       coalesce(p.ended_at < %(horizon)s AND p.scheduled_for < %(horizon)s, false)
           AND p.run_id NOT IN (SELECT run_id FROM unfinished)
           AND p.job_id NOT IN (SELECT upstream_id FROM waited_for),
       (j.state <> 'cancelled' AND NOT EXISTS (
           SELECT FROM jobs_execution n
            WHERE n.job_id = p.job_id AND greatest(n.id, p.id) <> p.id AND n.ended_at IS NOT NULL))
       OR (p.schedule_id IS NOT NULL
           AND EXISTS (SELECT FROM jobs_dependency d WHERE d.upstream_id = p.job_id)
           AND NOT EXISTS (SELECT FROM jobs_execution n
                            WHERE n.schedule_id = p.schedule_id AND n.scheduled_for > p.scheduled_for))
       OR (p.id = p.run_id AND EXISTS (
           SELECT FROM jobs_execution m
            WHERE m.run_id = p.id AND m.run_id <> m.id
              AND EXISTS (SELECT FROM jobs_dependency d WHERE d.upstream_id = m.job_id)
              AND NOT EXISTS (SELECT FROM jobs_execution n
                               WHERE n.job_id = m.job_id AND greatest(n.id, m.id) <> m.id)
           OFFSET 0))
  FROM page p
  JOIN jobs_job j ON j.id = p.job_id
 ORDER BY p.id

-- name: prune_dropped_ranges
-- By primary key: a range is written after its last instant, and ids grow with time.
-- The last known instants of an upstream's schedule stay, because a dependent may read them.
DELETE FROM jobs_droppedrange
 WHERE id = ANY(ARRAY(SELECT r.id FROM jobs_droppedrange r JOIN jobs_schedule s ON s.id = r.schedule_id
                       WHERE r.id < %(bound)s AND r.last < %(horizon)s
                         AND (NOT EXISTS (SELECT FROM jobs_dependency d WHERE d.upstream_id = s.job_id)
                              OR EXISTS (SELECT FROM jobs_execution e
                                          WHERE e.schedule_id = r.schedule_id AND e.scheduled_for > r.last))
                       ORDER BY r.id LIMIT %(limit)s))

-- name: prune_schedule_versions
-- Index: schedule_version_over. A limit on the number of instants counts from the first one: if a version does not
-- store how many instants preceded it, all versions before it stay.
DELETE FROM jobs_scheduleversion
 WHERE id = ANY(ARRAY(SELECT v.id FROM jobs_scheduleversion v
                       WHERE v.to_at < %(horizon)s AND v.number > 1
                         AND NOT EXISTS (SELECT FROM jobs_scheduleversion w
                                          WHERE w.schedule_id = v.schedule_id
                                            AND w.max_count IS NOT NULL AND w.settled_before IS NULL)
                       ORDER BY v.to_at LIMIT %(limit)s))
