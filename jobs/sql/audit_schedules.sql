-- auditing._next_batch. By primary key, from one id to the next. Of one in quarantine, what was settled last is all that
-- is known of how far it came.
SELECT s.id, s.next_instant, s.quarantined_at IS NOT NULL,
       CASE WHEN s.quarantined_at IS NOT NULL THEN greatest(
           (SELECT max(e.scheduled_for) FROM jobs_execution e WHERE e.schedule_id = s.id),
           (SELECT max(d.last) FROM jobs_droppedrange d WHERE d.schedule_id = s.id)) END,
       statement_timestamp()
  FROM jobs_schedule s
  JOIN jobs_job j ON j.id = s.job_id
 WHERE s.id > %(after)s
   AND (%(owner_id)s::bigint IS NULL OR j.owner_id = %(owner_id)s::bigint)
   AND (%(job_id)s::uuid IS NULL OR s.job_id = %(job_id)s::uuid)
 ORDER BY s.id
 LIMIT %(limit)s
