-- log_indexing._index_step. Indexes: attempt_log_unindexed, attempt_number_once.
-- The logs that may have more to index, from an execution on. Complete: whatever was on its way when it ended has come.
SELECT l.execution_id, l.attempt, l.day, l.owner_id, l.job_id, l.indexed_to, l.stdout_carry, l.stderr_carry,
       a.id IS NULL OR coalesce(a.ended_at < statement_timestamp() - make_interval(secs => %(complete_seconds)s), false)
  FROM jobs_attemptlog l
  LEFT JOIN jobs_attempt a ON a.execution_id = l.execution_id AND a.number = l.attempt
 WHERE l.indexed_at IS NULL AND l.execution_id >= %(cursor)s
 ORDER BY l.execution_id, l.attempt
 LIMIT %(limit)s
