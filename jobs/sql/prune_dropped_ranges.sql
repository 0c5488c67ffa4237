-- retention._prune_ranges. By primary key: a range is written after its last instant, and ids grow with time.
-- What is the last that is known of an upstream's schedule stays: a dependent may look at it.
DELETE FROM jobs_droppedrange
 WHERE id = ANY(ARRAY(SELECT r.id FROM jobs_droppedrange r JOIN jobs_schedule s ON s.id = r.schedule_id
                       WHERE r.id < %(bound)s AND r.last < %(horizon)s
                         AND (NOT EXISTS (SELECT FROM jobs_dependency d WHERE d.upstream_id = s.job_id)
                              OR EXISTS (SELECT FROM jobs_execution e
                                          WHERE e.schedule_id = r.schedule_id AND e.scheduled_for > r.last))
                       ORDER BY r.id LIMIT %(limit)s))
