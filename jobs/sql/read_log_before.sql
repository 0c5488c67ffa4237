-- logs.read_tail. By primary key, in one partition, backwards. As read_log, of what precedes.
SELECT sequence, stream, logged_at, data
  FROM (SELECT sequence, stream, logged_at, data,
               sum(octet_length(data)) OVER (ORDER BY sequence DESC) - octet_length(data) AS bytes_after
          FROM (SELECT sequence, stream, logged_at, data
                  FROM jobs_logchunk
                 WHERE day = %(day)s AND execution_id = %(execution_id)s AND attempt = %(attempt)s
                   AND sequence < %(before)s AND (%(stream)s::text IS NULL OR stream = %(stream)s)
                 ORDER BY sequence DESC
                 LIMIT %(max_chunks)s) preceding) summed
 WHERE bytes_after < %(max_bytes)s
 ORDER BY sequence
