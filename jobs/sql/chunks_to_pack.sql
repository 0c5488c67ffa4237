-- log_archiving._Chunks. By primary key, in one partition a log. The chunks of many logs, one log after the other, from where
-- the last page ended, until so many bytes are together: one chunk always, however large. Sizes are read beside the data.
SELECT n, sequence, stream, logged_at, data
  FROM (SELECT n, sequence, stream, logged_at, data,
               sum(octet_length(data)) OVER (ORDER BY n, sequence) - octet_length(data) AS bytes_before
          FROM (SELECT w.n, c.sequence, c.stream, c.logged_at, c.data
                  FROM unnest(%(days)s::date[], %(execution_ids)s::uuid[], %(attempts)s::int[])
                       WITH ORDINALITY AS w (day, execution_id, attempt, n)
                 CROSS JOIN LATERAL (
                       SELECT c.sequence, c.stream, c.logged_at, c.data
                         FROM jobs_logchunk c
                        WHERE c.day = w.day AND c.execution_id = w.execution_id AND c.attempt = w.attempt
                          AND c.sequence > CASE WHEN w.n = 1 THEN %(after)s ELSE -1 END
                        ORDER BY c.sequence
                        LIMIT %(max_chunks)s) c
                 ORDER BY w.n, c.sequence
                 LIMIT %(max_chunks)s) following) summed
 WHERE bytes_before < %(max_bytes)s
 ORDER BY n, sequence
