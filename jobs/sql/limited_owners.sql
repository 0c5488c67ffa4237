-- owner_limits.read_limited. Index: execution_active. Of the owners who have a limit, those of whom something is active, and how
-- much: as many rows are read as workers hold.
SELECT a.owner_id, a.active, limits.most
  FROM (SELECT j.owner_id, count(*) AS active
          FROM jobs_execution e
          JOIN jobs_job j ON j.id = e.job_id
         WHERE e.state IN ('queued', 'claimed', 'running')
         GROUP BY j.owner_id) a
  LEFT JOIN jobs_ownerquota q ON q.owner_id = a.owner_id
 CROSS JOIN LATERAL (SELECT COALESCE(q.concurrent_executions, %(default_executions)s) AS most) limits
 WHERE limits.most > 0
