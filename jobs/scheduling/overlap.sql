-- name: count_unfinished_of_jobs
-- Index: execution_unfinished_of_job. Counts up to the limit of each job's policy, so that a long backlog costs no more
-- than a full one. Oldest first: cancel_running cancels those. JSON instead of arrays: knowing the number of jobs, the
-- planner would plan again for every batch, which takes longer than to run the plan.
SELECT j.id,
       (SELECT count(*)
          FROM (SELECT FROM jobs_execution e
                 WHERE e.job_id = j.id AND e.cancel_requested_at IS NULL
                   AND e.ended_at IS NULL
                 LIMIT j.count_limit) u),
       CASE WHEN j.max_cancelled > 0
            THEN ARRAY(SELECT e.id FROM jobs_execution e
                        WHERE e.job_id = j.id AND e.cancel_requested_at IS NULL
                          AND e.ended_at IS NULL
                        ORDER BY e.id LIMIT j.max_cancelled) END
  FROM json_to_recordset(%(jobs)s::json) AS j (id uuid, count_limit bigint, max_cancelled bigint)
