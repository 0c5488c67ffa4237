-- auditing._executions. Index: execution_once_per_instant. A page, from one row to the next; the id only matters where the
-- key of that index is broken, which is one of the things that an audit has to see.
SELECT e.schedule_id::text, e.scheduled_for, e.id::text, e.state, e.fired_at, e.trigger = 'schedule'
  FROM jobs_execution e
 WHERE e.schedule_id = ANY(%(ids)s::uuid[]) AND e.scheduled_for >= %(from)s AND e.scheduled_for <= %(to)s
   AND (e.schedule_id, e.scheduled_for, e.id) > (%(schedule_id)s::uuid, %(instant)s, %(id)s::uuid)
 ORDER BY e.schedule_id, e.scheduled_for, e.id
 LIMIT %(limit)s
