-- retention._prune_page. By keys: attempt_number_once, output_name_once_per_attempt, webhook_delivery_once, the primary keys.
-- What hangs on `over` goes; of these, the rows in `gone` go themselves.
WITH outputs AS (
    DELETE FROM jobs_output o USING jobs_attempt a
     WHERE o.attempt_id = a.id AND a.execution_id = ANY(%(over)s::uuid[])
), logs AS (
    DELETE FROM jobs_attemptlog WHERE execution_id = ANY(%(over)s::uuid[])
), deliveries AS (
    DELETE FROM jobs_webhookdelivery WHERE execution_id = ANY(%(over)s::uuid[])
), attempts AS (
    DELETE FROM jobs_attempt WHERE execution_id = ANY(%(over)s::uuid[])
)
DELETE FROM jobs_execution WHERE id = ANY(%(gone)s::uuid[]) AND ended_at IS NOT NULL
