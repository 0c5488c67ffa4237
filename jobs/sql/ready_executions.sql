-- placement.place_ready_executions. Indexes: execution_ready, execution_active.
-- What its job's or its queue's limit holds back, or no worker of the pool could ever take, is left out before LIMIT, so
-- that it never hides what could run.
WITH active AS MATERIALIZED (
    SELECT job_id, queue_id, count(*) AS active FROM jobs_execution
     WHERE state IN ('queued', 'claimed', 'running') GROUP BY job_id, queue_id
), by_job AS (SELECT job_id, sum(active) AS active FROM active GROUP BY job_id
), by_queue AS (SELECT queue_id, sum(active) AS active FROM active GROUP BY queue_id
), numbered AS (
    SELECT e.id, e.version_id, e.job_id, e.queue_id, e.rank,
           row_number() OVER (PARTITION BY e.job_id ORDER BY e.rank, e.id) + coalesce(b.active, 0) AS nth_of_job
      FROM jobs_execution e JOIN jobs_queue q ON q.id = e.queue_id AND q.pool = %(pool)s AND NOT q.paused
      JOIN jobs_jobversion v ON v.id = e.version_id
      LEFT JOIN by_job b ON b.job_id = e.job_id
     WHERE e.state = 'ready'
       AND EXISTS (SELECT 1 FROM jobs_worker w
                    WHERE w.pool = %(pool)s AND w.status = 'online' AND w.lease_until > statement_timestamp()
                      AND w.capabilities @> (v.capabilities || v.runtime::varchar(63))
                      AND w.cpu >= v.cpu AND w.memory_mb >= v.memory_mb AND w.disk_mb >= v.disk_mb)
), within_job AS (
    SELECT n.*, row_number() OVER (PARTITION BY n.queue_id ORDER BY n.rank, n.id) + coalesce(b.active, 0) AS nth_of_queue
      FROM numbered n JOIN jobs_jobversion v ON v.id = n.version_id
      LEFT JOIN by_queue b ON b.queue_id = n.queue_id
     WHERE v.max_concurrency IS NULL OR n.nth_of_job <= v.max_concurrency
)
SELECT w.id, v.cpu, v.memory_mb, v.disk_mb, v.capabilities || v.runtime::varchar(63)
  FROM within_job w JOIN jobs_jobversion v ON v.id = w.version_id JOIN jobs_queue q ON q.id = w.queue_id
 WHERE q.max_concurrency IS NULL OR w.nth_of_queue <= q.max_concurrency
 ORDER BY w.rank, w.id
 LIMIT %(limit)s
