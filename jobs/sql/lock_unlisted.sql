-- transitions.lose_unlisted. Index: execution_active. What a living worker has held for long and does not list, and what is
-- left of its former lives. SKIP LOCKED: whoever holds a row of its, and for how long, must not keep it from renewing.
SELECT e.id
  FROM jobs_execution e
 WHERE e.worker_id = %(worker_id)s AND e.state IN ('queued', 'claimed', 'running')
   AND (e.incarnation <> %(incarnation)s
        OR (e.state <> 'queued' AND e.id <> ALL(%(listed)s::uuid[])
            AND e.claimed_at < statement_timestamp() - make_interval(secs => %(unlisted_seconds)s)))
 ORDER BY e.id
   FOR NO KEY UPDATE SKIP LOCKED
