-- execution_lists._find_of_owner. Index: execution_list_by_job, once for each of the owner's few jobs.
-- The ids of an owner's latest executions. Without the lateral join the planner may read the whole table backwards.
SELECT e.id
  FROM jobs_job j
 CROSS JOIN LATERAL (
    SELECT x.id FROM jobs_execution x
     WHERE x.job_id = j.id AND x.id < %(before)s
     ORDER BY x.id DESC
     LIMIT %(limit)s
 ) AS e
 WHERE j.owner_id = %(owner_id)s
 ORDER BY e.id DESC
 LIMIT %(limit)s
