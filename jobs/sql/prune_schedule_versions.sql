-- retention._prune_versions. Index: schedule_version_over. A limit on the number of instants counts them from the first
-- on: where a version does not say how many were settled before it, all that came before it have to stay.
DELETE FROM jobs_scheduleversion
 WHERE id = ANY(ARRAY(SELECT v.id FROM jobs_scheduleversion v
                       WHERE v.to_at < %(horizon)s AND v.number > 1
                         AND NOT EXISTS (SELECT FROM jobs_scheduleversion w
                                          WHERE w.schedule_id = v.schedule_id
                                            AND w.max_count IS NOT NULL AND w.settled_before IS NULL)
                       ORDER BY v.to_at LIMIT %(limit)s))
