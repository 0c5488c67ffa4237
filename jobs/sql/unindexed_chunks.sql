-- log_indexing._index_step. By the primary key of the chunks. What follows in each log, up to so many chunks of each and so
-- many chunks and bytes in all, in the order of the logs: no more is read. What is missing in a log that grows may still
-- come: what follows it waits.
SELECT execution_id, attempt, sequence, stream, logged_at, data
  FROM (SELECT n, execution_id, attempt, sequence, stream, logged_at, data,
               sum(octet_length(data)) OVER (ORDER BY n, sequence) - octet_length(data) AS bytes_before
          FROM (SELECT l.n, l.execution_id, l.attempt, c.sequence, c.stream, c.logged_at, c.data
                  FROM unnest(%(days)s::date[], %(executions)s::uuid[], %(attempts)s::int[], %(reached)s::int[],
                              %(complete)s::bool[])
                       WITH ORDINALITY AS l (day, execution_id, attempt, indexed_to, complete, n)
                 CROSS JOIN LATERAL (
                       SELECT f.*, row_number() OVER (ORDER BY f.sequence) AS number
                         FROM (SELECT c.sequence, c.stream, c.logged_at, c.data
                                 FROM jobs_logchunk c
                                WHERE c.day = l.day AND c.execution_id = l.execution_id AND c.attempt = l.attempt
                                  AND c.sequence > l.indexed_to
                                ORDER BY c.sequence
                                LIMIT %(chunks_each)s) f) c
                 WHERE l.complete OR c.sequence = l.indexed_to + c.number
                 ORDER BY l.n, c.sequence
                 LIMIT %(max_chunks)s) following) summed
 WHERE bytes_before < %(max_bytes)s
 ORDER BY n, sequence
