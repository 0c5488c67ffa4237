-- name: announce_output
-- By primary key, attempt_number_once. Count the outputs of the attempt against its limits. Announcing the same output
-- again after a lost response or a failed upload counts once; with another size it counts as another output.
UPDATE jobs_attempt a
   SET output_files = a.output_files + (a.output_announced <> %(announced)s)::int,
       output_bytes = a.output_bytes + CASE WHEN a.output_announced = %(announced)s THEN 0 ELSE %(size)s END,
       output_announced = %(announced)s
  FROM jobs_execution e
 WHERE e.id = %(execution_id)s AND e.attempt = %(attempt)s AND e.state IN ('claimed', 'running')
   AND e.worker_id = %(worker_id)s AND e.incarnation = %(incarnation)s
   AND a.execution_id = e.id AND a.number = e.attempt
   AND (a.output_announced = %(announced)s
        OR (a.output_files < %(max_files)s AND a.output_bytes + %(size)s <= %(max_bytes)s))
