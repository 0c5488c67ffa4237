-- demands.read_workers, for placement and explanations. Index: execution_active.
-- What is allocated is derived from what is active: it cannot leak. Those without a free slot are told of on request only.
WITH active AS MATERIALIZED (
     SELECT e.worker_id, v.cpu, v.memory_mb, v.disk_mb, v.resources
       FROM jobs_execution e JOIN jobs_jobversion v ON v.id = e.version_id
      WHERE e.state IN ('queued', 'claimed', 'running'))
SELECT w.id, w.incarnation, w.capabilities, w.name,
       w.slots - coalesce(a.slots, 0), w.cpu - coalesce(a.cpu, 0),
       w.memory_mb - coalesce(a.memory_mb, 0), w.disk_mb - coalesce(a.disk_mb, 0),
       coalesce(r.taken, '{}')::text,
       jsonb_build_object('slots', w.slots, 'cpu', w.cpu, 'memory_mb', w.memory_mb, 'disk_mb', w.disk_mb)::text,
       w.resources::text
  FROM jobs_worker w
  LEFT JOIN (SELECT worker_id, count(*) AS slots, sum(cpu) AS cpu, sum(memory_mb) AS memory_mb, sum(disk_mb) AS disk_mb
               FROM active GROUP BY worker_id) a ON a.worker_id = w.id
  LEFT JOIN (SELECT worker_id, jsonb_object_agg(key, amount) AS taken
               FROM (SELECT worker_id, need.key, sum(need.value::bigint) AS amount
                       FROM active CROSS JOIN LATERAL jsonb_each_text(active.resources) need
                      WHERE active.resources <> '{}' GROUP BY worker_id, need.key) counted
              GROUP BY worker_id) r ON r.worker_id = w.id
 WHERE w.pool = %(pool)s AND w.status = 'online' AND w.refusal = '' AND w.lease_until > statement_timestamp()
   AND (%(full_ones)s OR w.slots > coalesce(a.slots, 0))
 ORDER BY w.id
