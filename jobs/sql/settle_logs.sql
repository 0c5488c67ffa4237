-- log_archiving.settle_logs. Index: attempt_log_unsettled. What is archived and can be searched to its end; what somebody
-- works on is settled the next time.
WITH done AS MATERIALIZED (
    SELECT execution_id, attempt
      FROM jobs_attemptlog
     WHERE settled_at IS NULL AND pack_id IS NOT NULL AND indexed_at IS NOT NULL
     ORDER BY day
     LIMIT %(limit)s
       FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE jobs_attemptlog l
   SET settled_at = statement_timestamp()
  FROM done d
 WHERE l.execution_id = d.execution_id AND l.attempt = d.attempt
