-- transitions.end. By primary key. One end for an attempt, terminal or not, under the full fence.
-- Alone: only if nobody asked for its cancelling and nothing follows from it, neither a fixed delay nor dependents.
-- OFFSET 0 keeps these lookups by key: else the planner may read all schedules to find one.
WITH ended AS (
    UPDATE jobs_execution e
       SET state = %(target)s, reason = %(reason)s, exit_code = %(exit_code)s, signal = %(signal)s,
           result = %(result)s::jsonb,
           tries_used = e.tries_used + %(tries)s,
           worker_id = CASE WHEN %(terminal)s THEN e.worker_id END,
           incarnation = CASE WHEN %(terminal)s THEN e.incarnation END,
           ended_at = CASE WHEN %(terminal)s THEN clock_timestamp() END,
           retry_at = CASE WHEN %(target)s = 'backing_off'
                           THEN clock_timestamp() + make_interval(secs => %(retry_seconds)s) END,
           dead_letter = CASE WHEN %(target)s IN ('failed', 'timed_out') THEN 'open' END,
           ready_at = CASE WHEN %(target)s = 'ready' THEN clock_timestamp() ELSE e.ready_at END
     WHERE e.id = %(execution_id)s AND e.attempt = %(attempt)s AND e.state = ANY(%(sources)s::text[])
       AND e.worker_id = %(worker_id)s AND e.incarnation = %(incarnation)s
       AND (NOT %(alone)s OR (
            e.cancel_requested_at IS NULL
            AND NOT EXISTS (SELECT FROM jobs_dependency d WHERE d.upstream_id = e.job_id OFFSET 0)
            AND NOT EXISTS (SELECT FROM jobs_schedule s WHERE s.id = e.schedule_id AND s.kind = 'delay' OFFSET 0)))
    RETURNING e.id, e.attempt, e.job_id, e.run_id, e.state
), attempt AS (
    UPDATE jobs_attempt a
       SET ended_at = clock_timestamp(), reason = %(attempt_reason)s, exit_code = %(exit_code)s, signal = %(signal)s,
           error = %(error)s, cpu_seconds = %(cpu_seconds)s, peak_memory_bytes = %(peak_memory_bytes)s,
           peak_disk_bytes = %(peak_disk_bytes)s,
           log_truncated = a.log_truncated OR %(log_truncated)s
      FROM ended WHERE a.execution_id = ended.id AND a.number = ended.attempt)
SELECT id, job_id, run_id, state FROM ended
