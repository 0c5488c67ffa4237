-- transitions.claim. By primary key. The fence of a run: one worker, one attempt, not cancelled, not overdue, lease alive;
-- it returns everything the run needs, so that a message is only a hint. A run gets at most what is left of its deadline.
WITH claimed AS (
    UPDATE jobs_execution e
       SET state = %(target)s, claimed_at = clock_timestamp()
     WHERE e.id = %(execution_id)s AND e.attempt = %(attempt)s AND e.state = ANY(%(sources)s::text[])
       AND e.worker_id = %(worker_id)s AND e.incarnation = %(incarnation)s AND e.cancel_requested_at IS NULL
       AND (e.deadline_at IS NULL OR e.deadline_at > clock_timestamp())
       AND EXISTS (SELECT 1 FROM jobs_worker w
                    WHERE w.id = e.worker_id AND w.incarnation = e.incarnation
                      AND w.lease_until > statement_timestamp())
    RETURNING e.*
), attempt AS (
    INSERT INTO jobs_attempt (id, execution_id, number, worker_id, incarnation, placed_at, claimed_at, error, log_truncated)
    SELECT %(attempt_id)s, id, attempt, worker_id, incarnation, placed_at, claimed_at, '', false FROM claimed)
SELECT c.id, c.attempt, j.id, j.name, c.run_id, c.scheduled_for, c.claimed_at, v.runtime, v.args::text, v.env::text,
       v.cpu, v.memory_mb, v.disk_mb,
       v.timeout_seconds, a.sha256, a.size, extract(epoch FROM c.deadline_at - c.claimed_at)::float8,
       coalesce((SELECT json_agg(json_build_object('path', i.path, 'sha256', f.sha256, 'size', f.size) ORDER BY i.path)
                   FROM jobs_versioninput i JOIN jobs_artifact f ON f.id = i.artifact_id
                  WHERE i.version_id = v.id), '[]')::text, v.network,
       coalesce((SELECT json_agg(json_build_object('owner', j.owner_id, 'name', g.name, 'env', g.env, 'path', g.path,
                                                   'sealed', encode(s.sealed, 'base64')) ORDER BY g.name, g.env, g.path)
                   FROM jobs_versionsecret g LEFT JOIN jobs_secret s ON s.owner_id = j.owner_id AND s.name = g.name
                  WHERE g.version_id = v.id), '[]')::text
  FROM claimed c
  JOIN jobs_jobversion v ON v.id = c.version_id
  JOIN jobs_artifact a ON a.id = v.artifact_id
  JOIN jobs_job j ON j.id = c.job_id
