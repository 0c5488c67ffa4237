-- name: delete_outputs
-- Indexes: attempt_number_once, output_name_once_per_attempt, primary key. The caller holds the execution's lock. Inserts
-- an event with the number of files and bytes if there were outputs.
WITH gone AS (
    DELETE FROM jobs_output o USING jobs_attempt a
     WHERE o.attempt_id = a.id AND a.execution_id = %(execution_id)s RETURNING o.size
)
INSERT INTO jobs_executionevent (id, created_at, execution_id, attempt, name, detail)
SELECT gen_random_uuid(), clock_timestamp(), e.id, e.attempt, 'outputs.deleted',
       jsonb_build_object('by', %(by)s::text, 'files', g.files, 'bytes', g.bytes)
  FROM jobs_execution e, (SELECT count(*) AS files, sum(size) AS bytes FROM gone) g
 WHERE e.id = %(execution_id)s AND g.files > 0
