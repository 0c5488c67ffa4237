-- name: read_window_page
-- Index: schedule_due. A page of the schedules due in a range of time, by keyset.
SELECT id, next_fire_at
  FROM jobs_schedule
 WHERE next_fire_at >= %(after)s AND next_fire_at <= %(until)s
   AND (next_fire_at, id) > (%(after)s, %(after_id)s)
 ORDER BY next_fire_at, id
 LIMIT %(limit)s
