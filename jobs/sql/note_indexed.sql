-- log_indexing._index_step. By primary key. Only from where it was read: nothing is indexed twice.
UPDATE jobs_attemptlog l
   SET indexed_to = n.indexed_to, stdout_carry = n.stdout_carry, stderr_carry = n.stderr_carry,
       indexed_at = CASE WHEN n.complete THEN statement_timestamp() END
  FROM unnest(%(executions)s::uuid[], %(attempts)s::int[], %(from)s::int[], %(to)s::int[], %(stdout)s::bytea[],
              %(stderr)s::bytea[], %(complete)s::boolean[])
       AS n (execution_id, attempt, indexed_from, indexed_to, stdout_carry, stderr_carry, complete)
 WHERE l.execution_id = n.execution_id AND l.attempt = n.attempt AND l.indexed_to = n.indexed_from
