-- name: read_newest_of_jobs
-- Index: execution_list_by_job, once for each job, which are few. The newest executions of these jobs. Only the jobs
-- with the newest executions can contribute, each no more than are newer than the last of those.
WITH newest AS MATERIALIZED (
    SELECT j.id AS job_id, e.id
      FROM unnest(%(job_ids)s::uuid[]) AS j (id)
     CROSS JOIN LATERAL (
        SELECT x.id FROM jobs_execution x
         WHERE x.job_id = j.id AND x.id < %(start)s
         ORDER BY x.id DESC
         LIMIT 1
     ) AS e
     ORDER BY e.id DESC
     LIMIT %(limit)s
)
SELECT e.id
  FROM newest n
 CROSS JOIN LATERAL (
    SELECT x.id FROM jobs_execution x
     WHERE x.job_id = n.job_id AND x.id < %(start)s
       AND x.id >= coalesce((SELECT m.id FROM newest m ORDER BY m.id DESC OFFSET %(limit)s - 1), %(end)s)
     ORDER BY x.id DESC
     LIMIT %(limit)s
 ) AS e
 ORDER BY e.id DESC
 LIMIT %(limit)s

-- name: read_oldest_of_jobs
-- Index: execution_list_by_job, once for each job, which are few. The oldest executions of these jobs. Only the jobs
-- with the oldest executions can contribute, each no more than are older than the last of those.
WITH oldest AS MATERIALIZED (
    SELECT j.id AS job_id, e.id
      FROM unnest(%(job_ids)s::uuid[]) AS j (id)
     CROSS JOIN LATERAL (
        SELECT x.id FROM jobs_execution x
         WHERE x.job_id = j.id AND x.id > %(start)s
         ORDER BY x.id
         LIMIT 1
     ) AS e
     ORDER BY e.id
     LIMIT %(limit)s
)
SELECT e.id
  FROM oldest n
 CROSS JOIN LATERAL (
    SELECT x.id FROM jobs_execution x
     WHERE x.job_id = n.job_id AND x.id > %(start)s
       AND x.id <= coalesce((SELECT m.id FROM oldest m ORDER BY m.id OFFSET %(limit)s - 1), %(end)s)
     ORDER BY x.id
     LIMIT %(limit)s
 ) AS e
 ORDER BY e.id
 LIMIT %(limit)s
