-- name: resolve_dead_letter
-- By primary key. The caller holds the row's lock; an execution that is no open dead letter only gets the event.
WITH settled AS (
    UPDATE jobs_execution SET dead_letter = %(becomes)s WHERE id = %(execution_id)s AND dead_letter = 'open')
INSERT INTO jobs_executionevent (id, created_at, execution_id, attempt, name, detail)
SELECT gen_random_uuid(), clock_timestamp(), id, attempt, %(name)s, %(detail)s::jsonb
  FROM jobs_execution WHERE id = %(execution_id)s
