-- name: read_storage_use
-- Index-only scans of artifact_by_owner, output_bytes_by_owner and log_bytes_by_owner, and the unique key of quotas.
-- Unarchived logs by log_unarchived_by_owner and attempt_number_once, one counter per log. One row per owner given.
SELECT u.id, COALESCE(q.storage_mb, %(default_mb)s)::bigint * 1048576, a.bytes, o.bytes, l.bytes + w.bytes
  FROM unnest(%(owner_ids)s::int[]) u (id)
  LEFT JOIN jobs_ownerquota q ON q.owner_id = u.id
 CROSS JOIN LATERAL (SELECT COALESCE(sum(size), 0)::bigint AS bytes
                       FROM jobs_artifact WHERE owner_id = u.id AND deleted_at IS NULL) a
 CROSS JOIN LATERAL (SELECT COALESCE(sum(size), 0)::bigint AS bytes FROM jobs_output WHERE owner_id = u.id) o
 CROSS JOIN LATERAL (SELECT COALESCE(sum(pack_length), 0)::bigint AS bytes
                       FROM jobs_attemptlog WHERE owner_id = u.id AND pack_length IS NOT NULL) l
 CROSS JOIN LATERAL (SELECT COALESCE(sum(t.log_bytes), 0)::bigint AS bytes
                       FROM jobs_attemptlog w
                       JOIN jobs_attempt t ON t.execution_id = w.execution_id AND t.number = w.attempt
                      WHERE w.owner_id = u.id AND w.pack_id IS NULL AND w.settled_at IS NULL) w

-- name: find_growing_owners
-- Indexes: execution_held, log_unarchived_by_owner, attempt_number_once. The owners whose storage growing logs may exceed:
-- owners with active executions and with many unarchived logs or much in a few, plus recorded full owners, longest unchecked
-- first. Reads as many rows as there are active executions, and some logs per owner.
(SELECT a.owner_id
   FROM (SELECT j.owner_id
           FROM jobs_execution e
           JOIN jobs_job j ON j.id = e.job_id
          WHERE e.phase = 'held'
          GROUP BY j.owner_id
          ORDER BY random()
          LIMIT %(active_owners)s) a
  CROSS JOIN LATERAL (
        SELECT count(*) AS logs, sum(b.log_bytes) AS bytes
          FROM (SELECT t.log_bytes
                  FROM jobs_attemptlog l
                  JOIN jobs_attempt t ON t.execution_id = l.execution_id AND t.number = l.attempt
                 WHERE l.owner_id = a.owner_id AND l.pack_id IS NULL AND l.settled_at IS NULL
                 LIMIT %(logs)s) b) w
  WHERE w.logs = %(logs)s OR w.bytes >= %(log_bytes)s
  LIMIT %(limit)s)
 UNION
(SELECT owner_id FROM jobs_fullowner ORDER BY checked_at LIMIT %(limit)s)
