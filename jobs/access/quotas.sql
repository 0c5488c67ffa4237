-- name: lock_job_quota
-- Index: unique key of quotas. The owner's limits of jobs and of unfinished executions; locks adding jobs if they are
-- limited.
SELECT limits.jobs, limits.backlog,
       CASE WHEN limits.jobs <> 0
            THEN pg_advisory_xact_lock(hashtextextended('punctual.jobs.' || %(owner_id)s::bigint, 0))::text END
  FROM (SELECT COALESCE(max(jobs), %(jobs)s::bigint), COALESCE(max(backlog), %(backlog)s::bigint)
          FROM jobs_ownerquota WHERE owner_id = %(owner_id)s) AS limits (jobs, backlog)

-- name: read_limited_owners
-- Index: execution_held. The owners with a limit and with active executions, and their number. Reads as many rows as there
-- are active executions.
SELECT a.owner_id, a.active, limits.executions
  FROM (SELECT j.owner_id, count(*) AS active
          FROM jobs_execution e
          JOIN jobs_job j ON j.id = e.job_id
         WHERE e.phase = 'held'
         GROUP BY j.owner_id) a
  LEFT JOIN jobs_ownerquota q ON q.owner_id = a.owner_id
 CROSS JOIN LATERAL (SELECT COALESCE(q.concurrent_executions, %(default_executions)s) AS executions) limits
 WHERE limits.executions > 0

-- name: find_crowded_upstream
-- Indexes: primary key, foreign key upstream_id. One of the jobs with more dependents than the limit, counted up to it.
SELECT u.name
  FROM jobs_job u
 WHERE u.id = ANY(%(ids)s::uuid[])
   AND EXISTS (SELECT FROM jobs_dependency d
                 JOIN jobs_job j ON j.id = d.job_id
                WHERE d.upstream_id = u.id AND j.deleted_at IS NULL
               OFFSET %(limit)s)
 LIMIT 1
