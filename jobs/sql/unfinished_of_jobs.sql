-- overlaps.apply_overlaps. Index: execution_unfinished_by_job. The oldest first: those are what cancel_running ends.
SELECT job_id, count(*), (array_agg(id ORDER BY id))[1:%(most)s]
  FROM jobs_execution
 WHERE job_id = ANY(%(job_ids)s::uuid[])
   AND state IN ('backing_off', 'blocked', 'claimed', 'queued', 'ready', 'running')
   AND cancel_requested_at IS NULL
 GROUP BY job_id
