-- reaping.reap_lost_workers. Index: execution_active. Workers that are gone, or registered anew, while something is still
-- placed on their former life: a placement that raced a registration, or what was locked when it was to be taken back.
-- With the first life whose work is none of this: they are not locked, and may register and claim before it is taken.
SELECT DISTINCT w.id, w.incarnation + (w.status NOT IN ('online', 'suspect', 'draining'))::int, w.status = 'offline'
  FROM jobs_execution e JOIN jobs_worker w ON w.id = e.worker_id
 WHERE e.state IN ('queued', 'claimed', 'running')
   AND (e.incarnation <> w.incarnation OR w.status NOT IN ('online', 'suspect', 'draining'))
