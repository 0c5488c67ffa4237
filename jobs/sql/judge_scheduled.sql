-- dependencies.judge_scheduled, and whoever ends an upstream. Keys: execution_once_per_instant, execution_list_by_job,
-- execution_unfinished_by_job. Each waits for the latest execution of each upstream at or before its own instant, which is
-- known once nothing of that upstream, or of what fires it, is to come at or before that instant. An upstream that has no
-- execution by then has not ended as any condition says.
WITH RECURSIVE upstream AS MATERIALIZED (
    SELECT c.id, c.instant, c.cancelled, d.upstream_id, d.condition, own.scheduled, latest.instant AS latest_instant,
           latest.state, bool_or(own.pending OR latest.unfinished IS TRUE) OVER (PARTITION BY c.id) AS waits
      FROM (SELECT e.id, e.job_id, e.scheduled_for AS instant, j.state = 'cancelled' AS cancelled
              FROM jobs_execution e CROSS JOIN LATERAL (SELECT j.state FROM jobs_job j WHERE j.id = e.job_id OFFSET 0) j
             WHERE e.id = ANY(%(ids)s::uuid[]) AND e.state = 'blocked') c
      LEFT JOIN LATERAL (SELECT * FROM jobs_dependency d WHERE d.job_id = c.job_id OFFSET 0) d ON true
     CROSS JOIN LATERAL (
           SELECT coalesce(bool_or(s.deleted_at IS NULL), false) AS scheduled,
                  coalesce(bool_or(s.next_instant <= c.instant), false) AS pending
             FROM jobs_schedule s WHERE s.job_id = d.upstream_id) own
      LEFT JOIN LATERAL (
           SELECT l.instant, l.state, l.id
             FROM jobs_schedule s CROSS JOIN LATERAL (
                  (SELECT e.scheduled_for AS instant, e.state, e.id FROM jobs_execution e
                    WHERE e.schedule_id = s.id AND e.scheduled_for <= c.instant ORDER BY e.scheduled_for DESC LIMIT 1)
                    UNION ALL
                  (SELECT least(r.last, c.instant), 'missed', r.id FROM jobs_droppedrange r
                    WHERE r.schedule_id = s.id AND r.reason = 'catch_up' AND r.first <= c.instant
                    ORDER BY r.first DESC LIMIT 1)) l
            WHERE s.job_id = d.upstream_id
            ORDER BY l.instant DESC, l.id DESC LIMIT 1) fired ON true
      LEFT JOIN LATERAL (
           -- By hand or by upstreams, whose instant is that of their run. Of a job with schedules only what is newer than
           -- its latest instant matters: ids begin with the time, which spares reading its history.
           SELECT recent.* FROM (
                  SELECT root.scheduled_for AS instant, e.state, e.id
                    FROM jobs_execution e CROSS JOIN LATERAL (
                         SELECT r.scheduled_for FROM jobs_execution r WHERE r.id = e.run_id OFFSET 0) root
                   WHERE e.job_id = d.upstream_id AND e.schedule_id IS NULL AND root.scheduled_for <= c.instant
                     AND e.id > coalesce(
                         (lpad(to_hex(floor(extract(epoch FROM fired.instant - interval '1 minute') * 1000)::bigint), 12, '0')
                          || repeat('0', 20))::uuid, '00000000-0000-0000-0000-000000000000')
                   ORDER BY e.id DESC LIMIT 50) recent
            ORDER BY recent.instant DESC, recent.id DESC LIMIT 1) other ON true
      LEFT JOIN LATERAL (
           SELECT l.instant, l.state,
                  l.state NOT IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'missed', 'skipped') AS unfinished
             FROM (VALUES (fired.instant, fired.state, fired.id), (other.instant, other.state, other.id))
                  AS l (instant, state, id)
            WHERE l.instant IS NOT NULL ORDER BY l.instant DESC, l.id DESC LIMIT 1) latest ON true
), above AS (
    -- What fires an upstream that has no schedule: asked only where nothing else is waited for.
    SELECT u.upstream_id AS given, d.upstream_id AS id
      FROM (SELECT DISTINCT upstream_id FROM upstream WHERE NOT scheduled AND NOT waits) u
     CROSS JOIN LATERAL (SELECT d.upstream_id FROM jobs_dependency d WHERE d.job_id = u.upstream_id OFFSET 0) d
     UNION
    SELECT a.given, d.upstream_id
      FROM above a
     CROSS JOIN LATERAL (SELECT d.upstream_id FROM jobs_dependency d WHERE d.job_id = a.id OFFSET 0) d
     WHERE NOT EXISTS (SELECT FROM jobs_schedule s WHERE s.job_id = a.id AND s.deleted_at IS NULL OFFSET 0)
), firing AS MATERIALIZED (
    SELECT a.given, (SELECT min(s.next_instant) FROM jobs_schedule s WHERE s.job_id = a.id) AS next_instant,
           ARRAY(SELECT root.scheduled_for FROM jobs_execution root
                  WHERE root.job_id = a.id AND root.id = root.run_id
                    AND root.state IN ('backing_off', 'blocked', 'claimed', 'queued', 'ready', 'running')) AS under_way
      FROM above a
), to_come AS MATERIALIZED (
    SELECT u.id
      FROM upstream u JOIN firing f ON f.given = u.upstream_id
     WHERE f.next_instant <= u.instant
        OR EXISTS (SELECT FROM unnest(f.under_way) AS run (instant)
                    WHERE run.instant <= u.instant AND (u.latest_instant IS NULL OR run.instant > u.latest_instant))
)
SELECT u.id, NOT u.cancelled AND coalesce(bool_and(coalesce(
           CASE u.condition WHEN 'success' THEN u.state = 'succeeded'
                            WHEN 'failure' THEN u.state IN ('failed', 'timed_out')
                            ELSE u.state IS NOT NULL END, false)) FILTER (WHERE u.upstream_id IS NOT NULL), true)
  FROM upstream u
 WHERE u.cancelled OR (NOT u.waits AND u.id NOT IN (SELECT t.id FROM to_come t))
 GROUP BY u.id, u.cancelled
