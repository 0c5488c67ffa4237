-- due_window.refill. Index: schedule_due. One page of what is due between two moments, by keyset.
SELECT id, next_fire_at
  FROM jobs_schedule
 WHERE next_fire_at >= %(after)s AND next_fire_at <= %(until)s
   AND (next_fire_at, id) > (%(after)s, %(after_id)s)
 ORDER BY next_fire_at, id
 LIMIT %(limit)s
