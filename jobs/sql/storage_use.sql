-- storage_quota.read_uses. By artifact_by_owner, output_bytes_by_owner, log_bytes_by_owner and the unique key of quotas,
-- sums from the indexes alone. One row for each owner that is asked for.
SELECT u.id, COALESCE(q.storage_mb, %(default_mb)s)::bigint * 1048576, a.bytes, o.bytes, l.bytes
  FROM unnest(%(owner_ids)s::int[]) u (id)
  LEFT JOIN jobs_ownerquota q ON q.owner_id = u.id
 CROSS JOIN LATERAL (SELECT COALESCE(sum(size), 0)::bigint AS bytes
                       FROM jobs_artifact WHERE owner_id = u.id AND deleted_at IS NULL) a
 CROSS JOIN LATERAL (SELECT COALESCE(sum(size), 0)::bigint AS bytes FROM jobs_output WHERE owner_id = u.id) o
 CROSS JOIN LATERAL (SELECT COALESCE(sum(pack_length), 0)::bigint AS bytes
                       FROM jobs_attemptlog WHERE owner_id = u.id AND pack_length IS NOT NULL) l
