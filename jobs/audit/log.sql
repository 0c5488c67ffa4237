-- name: insert_audit_entries
-- All changes of one actor in one transaction.
INSERT INTO jobs_auditentry (id, at, actor_id, actor_name, token_id, token_name, via, address, action, object_type,
                             object_id, object_name, owner_id, before, after)
SELECT c.id, statement_timestamp(), %(actor_id)s, %(actor_name)s, %(token_id)s::uuid, %(token_name)s, %(via)s,
       %(address)s::inet, c.action, split_part(c.action, '.', 1), c.object_id, c.object_name, c.owner_id, c.before,
       c.after
  FROM jsonb_to_recordset(%(changes)s::jsonb)
       AS c(id uuid, action text, object_id text, object_name text, owner_id bigint, before jsonb, after jsonb)

-- name: prune_audit_entries
-- By primary key, which grows with time. The table's trigger allows only this statement to delete.
WITH permitted AS MATERIALIZED (SELECT set_config('punctual.prunes_audit', 'on', true)),
     old AS MATERIALIZED (SELECT e.id FROM permitted, jobs_auditentry e
                           WHERE e.id < %(bound)s AND e.at < %(horizon)s ORDER BY e.id LIMIT %(limit)s)
DELETE FROM jobs_auditentry WHERE id = ANY(ARRAY(SELECT id FROM old))
