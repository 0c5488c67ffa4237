-- name: count_owner_backlog
-- Index: execution_unfinished_of_job, of the owner's jobs or of all jobs, whichever is fewer. The owner's unfinished
-- manually started executions, counted up to the limit.
SELECT count(*)
  FROM (SELECT
          FROM jobs_job j
          JOIN jobs_execution e ON e.job_id = j.id
         WHERE j.owner_id = %(owner_id)s AND j.deleted_at IS NULL
           AND e.trigger = 'manual' AND e.ended_at IS NULL
         LIMIT %(limit)s) b
