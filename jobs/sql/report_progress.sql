-- logs.append_chunks, when the run has said how far it is. By primary key; no index has the column, so that the update stays
-- on its page. The same fence as of the log.
UPDATE jobs_execution e
   SET progress = jsonb_build_object('attempt', e.attempt, 'percent', %(percent)s::float8, 'message', %(message)s::text,
                                     'at', clock_timestamp())
 WHERE e.id = %(execution_id)s AND e.attempt = %(attempt)s AND e.state IN ('claimed', 'running')
   AND e.worker_id = %(worker_id)s AND e.incarnation = %(incarnation)s
