-- log_indexing._index_step. By the primary key of the chunks. What follows in each log, up to so many chunks of each and so
-- many bytes in all, in the order of the logs: sizes are added up without reading what is stored apart.
SELECT execution_id, attempt, sequence, stream, logged_at, data
  FROM (SELECT l.execution_id, l.attempt, c.sequence, c.stream, c.logged_at, c.data,
               sum(octet_length(c.data)) OVER (ORDER BY l.execution_id, l.attempt, c.sequence) - octet_length(c.data) AS before
          FROM unnest(%(days)s::date[], %(executions)s::uuid[], %(attempts)s::int[], %(reached)s::int[])
               AS l (day, execution_id, attempt, indexed_to)
         CROSS JOIN LATERAL (
               SELECT c.sequence, c.stream, c.logged_at, c.data
                 FROM jobs_logchunk c
                WHERE c.day = l.day AND c.execution_id = l.execution_id AND c.attempt = l.attempt
                  AND c.sequence > l.indexed_to
                ORDER BY c.sequence
                LIMIT %(chunks_each)s) c) t
 WHERE before < %(max_bytes)s
 ORDER BY execution_id, attempt, sequence
