-- dead_letters.settle. By primary key. The caller holds the row's lock; one that was no open dead letter gets the event only.
WITH settled AS (
    UPDATE jobs_execution SET dead_letter = %(becomes)s WHERE id = %(execution_id)s AND dead_letter = 'open')
INSERT INTO jobs_executionevent (id, created_at, execution_id, attempt, name, detail)
SELECT gen_random_uuid(), clock_timestamp(), id, attempt, %(name)s, %(detail)s::jsonb
  FROM jobs_execution WHERE id = %(execution_id)s
