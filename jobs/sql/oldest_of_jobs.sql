-- execution_lists._of_jobs. Index: execution_list_by_job, once for each of the jobs, which are few.
-- The oldest executions of these jobs. Only the jobs with the oldest ones can have some of them, and of each no more than
-- are older than the last of those.
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
