-- placement.place_ready_executions. Index: execution_active. What is allocated is derived from what is active: it cannot leak.
SELECT w.id, w.incarnation, w.capabilities,
       w.slots - coalesce(a.slots, 0), w.cpu - coalesce(a.cpu, 0),
       w.memory_mb - coalesce(a.memory_mb, 0), w.disk_mb - coalesce(a.disk_mb, 0)
  FROM jobs_worker w
  LEFT JOIN (SELECT e.worker_id, count(*) AS slots, sum(v.cpu) AS cpu, sum(v.memory_mb) AS memory_mb,
                    sum(v.disk_mb) AS disk_mb
               FROM jobs_execution e JOIN jobs_jobversion v ON v.id = e.version_id
              WHERE e.state IN ('queued', 'claimed', 'running') GROUP BY e.worker_id) a ON a.worker_id = w.id
 WHERE w.pool = %(pool)s AND w.status = 'online' AND w.lease_until > statement_timestamp()
   AND w.slots > coalesce(a.slots, 0)
 ORDER BY w.id
