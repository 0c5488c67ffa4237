-- transitions.follow_queue, under the locks of these executions. By primary key. What waits stands in the queue that its job
-- has now, ranked by that queue: two pools that place for one job would each take the last place that its limit leaves.
UPDATE jobs_execution e
   SET queue_id = q.id,
       rank = coalesce(e.ready_at, e.fired_at) - make_interval(secs => (q.priority + v.priority) * q.aging_seconds)
  FROM jobs_job j
  JOIN jobs_jobversion present ON present.id = j.current_version_id
  JOIN jobs_queue q ON q.id = present.queue_id,
       jobs_jobversion v
 WHERE e.id = ANY(%(ids)s::uuid[]) AND e.state IN ('blocked', 'ready', 'backing_off')
   AND j.id = e.job_id AND v.id = e.version_id AND e.queue_id <> q.id
