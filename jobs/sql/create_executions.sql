-- transitions.create_executions. Every new execution of any trigger; a repeated instant or run is left as it is.
-- Rows come as one JSON text: a driver spends three times as long on arrays, which is what firing waits for.
-- Keys: execution_once_per_instant, execution_once_per_run, execution_retried_once.
INSERT INTO jobs_execution (
    id, job_id, version_id, schedule_id, queue_id, trigger, run_id, scheduled_for, state, attempt, tries_used,
    times_lost, pinned_worker_id, rank, fired_at, ready_at, ended_at, reason, retry_of, deadline_at)
SELECT n.id, j.id, v.id, n.schedule_id, v.queue_id, n.trigger, coalesce(n.run_id, n.id),
       coalesce(n.scheduled_for, statement_timestamp()), n.state, 0, 0, 0, n.pinned_worker_id,
       statement_timestamp() - make_interval(secs => (q.priority + v.priority) * q.aging_seconds),
       clock_timestamp(),
       CASE WHEN n.state = 'ready' THEN clock_timestamp() END,
       CASE WHEN n.state IN ('missed', 'skipped') THEN clock_timestamp() END,
       n.reason, n.retry_of,
       CASE WHEN n.state NOT IN ('missed', 'skipped')
            THEN clock_timestamp() + make_interval(secs => v.deadline_seconds) END
  FROM json_to_recordset(%(rows)s::json)
       AS n (id uuid, job_id uuid, schedule_id uuid, trigger text, run_id uuid, scheduled_for timestamptz, state text,
             reason text, pinned_worker_id uuid, retry_of uuid)
  JOIN jobs_job j ON j.id = n.job_id
  JOIN jobs_jobversion v ON v.id = j.current_version_id
  JOIN jobs_queue q ON q.id = v.queue_id
    ON CONFLICT DO NOTHING
