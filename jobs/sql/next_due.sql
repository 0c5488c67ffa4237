-- firing.seconds_until_next_due. Indexes: schedule_due and execution_backing_off, one row of each.
SELECT extract(epoch FROM least(
           (SELECT min(next_fire_at) FROM jobs_schedule WHERE next_fire_at IS NOT NULL),
           (SELECT min(retry_at) FROM jobs_execution WHERE state = 'backing_off')
       ) - clock_timestamp())::float8
