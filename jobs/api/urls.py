"""Routes under /api/v1, without trailing slashes."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import path, re_path
from django.views.decorators.csrf import csrf_exempt

from jobs.api.framework import problems
from jobs.api.openapi import views
from jobs.api.resources import (
    audit_attempts,
    audit_entries,
    audit_firings,
    queues,
    secrets,
    teams,
    tokens,
    usage,
    webhooks,
    workers,
)
from jobs.api.resources.definitions import backfills, bulk, calendars, jobs, schedules
from jobs.api.resources.executions import artifacts, dead_letters, execution_status, executions, log_search, logs
from jobs.api.worker_protocol import leases, runs


@csrf_exempt
def not_found(request: HttpRequest) -> HttpResponse:
    return problems.page_not_found(request, Http404())


urlpatterns = [
    path("jobs", jobs.Jobs.as_view()),
    path("jobs/bulk", bulk.JobsBulk.as_view()),
    path("jobs/<uuid:job_id>", jobs.JobDetail.as_view()),
    path("jobs/<uuid:job_id>/cancel", jobs.JobCancel.as_view()),
    path("jobs/<uuid:job_id>/pause", jobs.JobPause.as_view()),
    path("jobs/<uuid:job_id>/resume", jobs.JobResume.as_view()),
    path("jobs/<uuid:job_id>/execute", jobs.JobExecute.as_view()),
    path("jobs/<uuid:job_id>/next", jobs.JobNext.as_view()),
    path("jobs/<uuid:job_id>/backfill", backfills.JobBackfill.as_view()),
    path("jobs/<uuid:job_id>/backfills", backfills.JobBackfills.as_view()),
    path("backfills/<uuid:backfill_id>/cancel", backfills.BackfillCancel.as_view()),
    path("schedules/preview", schedules.SchedulesPreview.as_view()),
    path("calendars", calendars.Calendars.as_view()),
    path("calendars/<uuid:calendar_id>", calendars.CalendarDetail.as_view()),
    path("executions", executions.Executions.as_view()),
    path("executions/<uuid:execution_id>", execution_status.ExecutionDetail.as_view()),
    path("executions/<uuid:execution_id>/cancel", executions.ExecutionCancel.as_view()),
    path("executions/<uuid:execution_id>/retry", dead_letters.ExecutionRetry.as_view()),
    path("executions/<uuid:execution_id>/attempts", executions.ExecutionAttempts.as_view()),
    path("executions/<uuid:execution_id>/events", executions.ExecutionEvents.as_view()),
    path("executions/<uuid:execution_id>/explain", executions.ExecutionExplain.as_view()),
    path("executions/<uuid:execution_id>/logs", logs.ExecutionLogs.as_view()),
    path("executions/<uuid:execution_id>/outputs", executions.ExecutionOutputs.as_view()),
    path("executions/<uuid:execution_id>/start", runs.ExecutionStart.as_view()),
    path("executions/<uuid:execution_id>/complete", runs.ExecutionComplete.as_view()),
    path("dead-letters", dead_letters.DeadLetters.as_view()),
    path("dead-letters/<uuid:execution_id>/redrive", dead_letters.DeadLetterRedrive.as_view()),
    path("dead-letters/<uuid:execution_id>/dismiss", dead_letters.DeadLetterDismiss.as_view()),
    path("artifacts", artifacts.Artifacts.as_view()),
    path("artifacts/<uuid:artifact_id>", artifacts.ArtifactDetail.as_view()),
    path("artifacts/<uuid:artifact_id>/complete", artifacts.ArtifactComplete.as_view()),
    path("secrets", secrets.Secrets.as_view()),
    path("secrets/<uuid:secret_id>", secrets.SecretDetail.as_view()),
    path("teams", teams.Teams.as_view()),
    path("teams/<uuid:team_id>", teams.TeamDetail.as_view()),
    path("tokens", tokens.Tokens.as_view()),
    path("tokens/self", tokens.TokenSelf.as_view()),
    path("tokens/<uuid:token_id>", tokens.TokenDetail.as_view()),
    path("login", tokens.Login.as_view()),
    path("webhooks", webhooks.Webhooks.as_view()),
    path("webhooks/<uuid:webhook_id>", webhooks.WebhookDetail.as_view()),
    path("webhooks/<uuid:webhook_id>/rotate", webhooks.WebhookRotate.as_view()),
    path("webhooks/<uuid:webhook_id>/ping", webhooks.WebhookPing.as_view()),
    path("webhooks/<uuid:webhook_id>/deliveries", webhooks.WebhookDeliveries.as_view()),
    path("webhooks/<uuid:webhook_id>/deliveries/<uuid:delivery_id>/redeliver", webhooks.WebhookRedeliver.as_view()),
    path("audit", audit_entries.AuditEntries.as_view()),
    path("audit/attempts", audit_attempts.Attempts.as_view()),
    path("audit/firings", audit_firings.Firings.as_view()),
    path("logs/search", log_search.LogsSearch.as_view()),
    path("workers", workers.Workers.as_view()),
    path("workers/terms", leases.WorkerTerms.as_view()),
    path("workers/register", leases.WorkerRegister.as_view()),
    path("workers/<uuid:worker_id>", workers.WorkerDetail.as_view()),
    path("workers/<uuid:worker_id>/heartbeat", leases.WorkerHeartbeat.as_view()),
    path("workers/<uuid:worker_id>/claim", leases.WorkerClaim.as_view()),
    path("workers/<uuid:worker_id>/drain", leases.WorkerDrain.as_view()),
    path("workers/<uuid:worker_id>/leave", leases.WorkerLeave.as_view()),
    path("usage", usage.Usage.as_view()),
    path("queues", queues.Queues.as_view()),
    path("queues/<uuid:queue_id>", queues.QueueDetail.as_view()),
    path("schema", views.Schema.as_view(), name="schema"),
    path("docs", views.Docs.as_view(url_name="schema"), name="docs"),
    # Also with DEBUG, which would show its own 404 page.
    re_path("", not_found),
]
