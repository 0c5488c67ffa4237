-- name: count_herd
-- Index: schedule_due. How many schedules fire within this second, counted up to the limit.
SELECT count(*)
  FROM (SELECT
          FROM jobs_schedule
         WHERE next_fire_at >= %(second)s AND next_fire_at < %(second)s::timestamptz + interval '1 second'
         LIMIT %(limit)s) h
