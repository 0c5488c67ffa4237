-- log_archiving._place. By primary key. Only what nobody else has archived meanwhile; what can be searched by now is settled.
-- Locked in one order, so that two archivers wait for each other at most.
WITH free AS MATERIALIZED (
    SELECT l.execution_id, l.attempt, p.pack_offset, p.pack_length, p.archived_to
      FROM unnest(%(execution_ids)s::uuid[], %(attempts)s::int[], %(offsets)s::bigint[], %(lengths)s::bigint[],
                  %(lasts)s::int[]) AS p (execution_id, attempt, pack_offset, pack_length, archived_to)
      JOIN jobs_attemptlog l ON l.execution_id = p.execution_id AND l.attempt = p.attempt
     WHERE l.pack_id IS NULL AND l.settled_at IS NULL
     ORDER BY l.execution_id, l.attempt
       FOR NO KEY UPDATE OF l
)
UPDATE jobs_attemptlog l
   SET pack_id = %(pack_id)s, pack_offset = f.pack_offset, pack_length = f.pack_length, archived_to = f.archived_to,
       archive_failed_at = NULL,
       settled_at = CASE WHEN l.indexed_at IS NOT NULL THEN statement_timestamp() END
  FROM free f
 WHERE l.execution_id = f.execution_id AND l.attempt = f.attempt
