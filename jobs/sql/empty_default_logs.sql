-- log_retention._empty_default. By primary keys. What lies in the default partitions is little, and goes a log at a time: a
-- reader must never find the half of one. What is not settled stays; a log that is not noted any more was pruned.
WITH old AS MATERIALIZED (
    SELECT DISTINCT c.day, c.execution_id, c.attempt
      FROM (SELECT day, execution_id, attempt FROM jobs_logchunk_default WHERE day < %(before)s
             UNION ALL
            SELECT day, execution_id, attempt FROM jobs_logsegment_default WHERE day < %(before)s) c
     WHERE NOT EXISTS (SELECT FROM jobs_attemptlog l
                        WHERE l.execution_id = c.execution_id AND l.attempt = c.attempt AND l.settled_at IS NULL)
     LIMIT %(limit)s
), segments AS (
    DELETE FROM jobs_logsegment_default s USING old o
     WHERE s.day = o.day AND s.execution_id = o.execution_id AND s.attempt = o.attempt
)
DELETE FROM jobs_logchunk_default c USING old o
 WHERE c.day = o.day AND c.execution_id = o.execution_id AND c.attempt = o.attempt
