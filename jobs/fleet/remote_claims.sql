-- name: find_placed_work
-- Index: execution_held. Executions that wait on the worker for a claim, and claimed ones whose response was lost: the
-- worker does not list them and never started them.
SELECT e.id, e.attempt, e.state = 'claimed'
  FROM jobs_execution e
 WHERE e.worker_id = %(worker_id)s AND e.incarnation = %(incarnation)s AND e.phase = 'held'
   AND e.state IN ('queued', 'claimed') AND e.cancel_requested_at IS NULL
   AND (e.state = 'queued' OR e.id <> ALL(%(listed)s::uuid[]))
 ORDER BY e.placed_at, e.id LIMIT %(limit)s

-- name: reread_claim
-- By primary key. Repeat the response of claim_executions (execution/transitions.sql) for a worker that missed it.
SELECT e.id, e.attempt, j.id, j.name, e.run_id, e.scheduled_for, e.claimed_at, v.runtime, v.args::text, v.env::text,
       v.cpu, v.memory_mb, v.disk_mb,
       v.timeout_seconds, a.sha256, a.size, extract(epoch FROM e.deadline_at - clock_timestamp())::float8,
       coalesce((SELECT json_agg(json_build_object('path', i.path, 'sha256', f.sha256, 'size', f.size) ORDER BY i.path)
                   FROM jobs_versioninput i JOIN jobs_artifact f ON f.id = i.artifact_id
                  WHERE i.version_id = v.id), '[]')::text, v.network,
       coalesce((SELECT json_agg(json_build_object('owner', j.owner_id, 'name', g.name, 'env', g.env, 'path', g.path,
                                                   'sealed', encode(s.sealed, 'base64')) ORDER BY g.name, g.env, g.path)
                   FROM jobs_versionsecret g LEFT JOIN jobs_secret s ON s.owner_id = j.owner_id AND s.name = g.name
                  WHERE g.version_id = v.id), '[]')::text
  FROM jobs_execution e
  JOIN jobs_jobversion v ON v.id = e.version_id
  JOIN jobs_artifact a ON a.id = v.artifact_id
  JOIN jobs_job j ON j.id = e.job_id
 WHERE e.id = %(execution_id)s AND e.attempt = %(attempt)s AND e.state = 'claimed'
   AND e.worker_id = %(worker_id)s AND e.incarnation = %(incarnation)s AND e.cancel_requested_at IS NULL
