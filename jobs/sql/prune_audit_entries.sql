-- audit_trail.prune_entries. By primary key, which grows with time; the trigger of the table lets only this through.
WITH permitted AS MATERIALIZED (SELECT set_config('punctual.prunes_audit', 'on', true)),
     old AS MATERIALIZED (SELECT e.id FROM permitted, jobs_auditentry e
                           WHERE e.id < %(bound)s AND e.at < %(horizon)s ORDER BY e.id LIMIT %(limit)s)
DELETE FROM jobs_auditentry WHERE id = ANY(ARRAY(SELECT id FROM old))
