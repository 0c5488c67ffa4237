-- retention._next_page. Indexes: the primary key, execution_once_per_run, execution_list_by_job, execution_once_per_instant,
-- execution_unfinished_by_job. Ids grow with time, so the oldest executions are the first ones.
-- Whatever an unfinished execution may still look at stays: its run, and if it waits by an instant of its own, all of its
-- upstreams. The row of the last one of a job says what became of the job, and the last of a schedule, or of a job without
-- one and the root of its run, is what the next dependent will look at. greatest() keeps the planner from looking for a
-- later one of the same job by the primary key: of a job that is over there is none, and it would read them all.
WITH page AS MATERIALIZED (
    SELECT e.id, e.job_id, e.schedule_id, e.run_id, e.scheduled_for, e.ended_at
      FROM jobs_execution e
     WHERE e.id > %(after)s AND e.id < %(bound)s
     ORDER BY e.id
     LIMIT %(limit)s
), unfinished AS MATERIALIZED (
    SELECT DISTINCT u.run_id
      FROM (SELECT DISTINCT run_id FROM page) AS run
      JOIN jobs_execution u ON u.run_id = run.run_id
     WHERE u.ended_at IS NULL
), waited_for AS MATERIALIZED (
    SELECT DISTINCT d.upstream_id
      FROM (SELECT DISTINCT job_id FROM page) AS job
      JOIN jobs_dependency d ON d.upstream_id = job.job_id
      JOIN jobs_execution b ON b.job_id = d.job_id
     WHERE b.state = 'blocked' AND b.trigger = 'schedule'
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
            WHERE m.run_id = p.id AND m.id <> p.id
              AND EXISTS (SELECT FROM jobs_dependency d WHERE d.upstream_id = m.job_id)
              AND NOT EXISTS (SELECT FROM jobs_execution n
                               WHERE n.job_id = m.job_id AND greatest(n.id, m.id) <> m.id)))
  FROM page p
  JOIN jobs_job j ON j.id = p.job_id
 ORDER BY p.id
