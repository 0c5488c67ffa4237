-- demands.read_demand, for explanations. Indexes: execution_active, execution_unfinished_by_job.
-- One execution in the columns of ready_executions, whatever holds it back. A job that is full with what runs and what
-- waits before it has no room for it: ready_executions leaves it out for that.
SELECT e.id, v.cpu, v.memory_mb, v.disk_mb,
       v.capabilities || v.runtime::varchar(63) || CASE WHEN v.network THEN '{network}'::varchar(63)[] END
           || CASE WHEN EXISTS (SELECT FROM jobs_versioninput i WHERE i.version_id = v.id) THEN '{inputs}'::varchar(63)[] END
           || CASE WHEN EXISTS (SELECT FROM jobs_versionsecret g WHERE g.version_id = v.id) THEN '{secrets}'::varchar(63)[] END,
       v.resources::text,
       q.id, q.max_concurrency - busy.active, e.job_id,
       CASE WHEN own.active + own.earlier >= v.max_concurrency THEN 0 ELSE v.max_concurrency - own.active END,
       e.pinned_worker_id,
       coalesce(e.ready_at < statement_timestamp() - make_interval(secs => %(reserve_seconds)s), false),
       CASE WHEN whose.most > 0 THEN j.owner_id END, nullif(whose.most, 0)
  FROM jobs_execution e
  JOIN jobs_jobversion v ON v.id = e.version_id
  JOIN jobs_queue q ON q.id = e.queue_id
  JOIN jobs_job j ON j.id = e.job_id
  LEFT JOIN jobs_ownerquota o ON o.owner_id = j.owner_id
 CROSS JOIN LATERAL (SELECT coalesce(o.concurrent_executions, %(default_executions)s) AS most) whose
 CROSS JOIN LATERAL (
       SELECT count(*) AS active FROM jobs_execution a
        WHERE a.queue_id = q.id AND a.state IN ('queued', 'claimed', 'running')) busy
 CROSS JOIN LATERAL (
       SELECT count(*) FILTER (WHERE o.state IN ('queued', 'claimed', 'running')) AS active,
              count(*) FILTER (WHERE o.state = 'ready' AND (o.rank, o.id) < (e.rank, e.id)
                                     AND (v.network OR NOT n.network)) AS earlier
         FROM jobs_execution o
         JOIN jobs_jobversion n ON n.id = o.version_id
        WHERE o.job_id = e.job_id
          AND o.state IN ('backing_off', 'blocked', 'claimed', 'queued', 'ready', 'running')) own
 WHERE e.id = %(id)s
