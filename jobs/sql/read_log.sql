-- logs.read_page, read_chunks. By primary key, in one partition. What follows, until so many bytes are together: one chunk
-- always, however large it is. The sizes are read beside the data, not from it.
SELECT sequence, stream, logged_at, data
  FROM (SELECT sequence, stream, logged_at, data,
               sum(octet_length(data)) OVER (ORDER BY sequence) - octet_length(data) AS bytes_before
          FROM (SELECT sequence, stream, logged_at, data
                  FROM jobs_logchunk
                 WHERE day = %(day)s AND execution_id = %(execution_id)s AND attempt = %(attempt)s
                   AND sequence > %(after)s AND (%(stream)s::text IS NULL OR stream = %(stream)s)
                 ORDER BY sequence
                 LIMIT %(max_chunks)s) following) summed
 WHERE bytes_before < %(max_bytes)s
 ORDER BY sequence
