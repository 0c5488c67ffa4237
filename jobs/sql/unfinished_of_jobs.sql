-- overlaps.apply_overlaps. Index: execution_unfinished_by_job. Counts no further than anybody asks, so that a long backlog
-- costs no more than a full one. The oldest first: those are what cancel_running ends.
SELECT j.id,
       (SELECT count(*)
          FROM (SELECT FROM jobs_execution e
                 WHERE e.job_id = j.id AND e.cancel_requested_at IS NULL
                   AND e.state IN ('backing_off', 'blocked', 'claimed', 'queued', 'ready', 'running')
                 LIMIT %(enough)s) u),
       CASE WHEN j.id = ANY(%(cancelling)s::uuid[])
            THEN ARRAY(SELECT e.id FROM jobs_execution e
                        WHERE e.job_id = j.id AND e.cancel_requested_at IS NULL
                          AND e.state IN ('backing_off', 'blocked', 'claimed', 'queued', 'ready', 'running')
                        ORDER BY e.id LIMIT %(most)s) END
  FROM unnest(%(job_ids)s::uuid[]) AS j (id)
