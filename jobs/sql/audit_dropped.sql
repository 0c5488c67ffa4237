-- auditing._dropped. Index: dropped_by_schedule.
SELECT d.schedule_id, d.first, d.last, d.count
  FROM jobs_droppedrange d
 WHERE d.schedule_id = ANY(%(ids)s::uuid[]) AND d.first <= %(to)s AND d.last >= %(from)s
 ORDER BY d.schedule_id, d.first, d.id
