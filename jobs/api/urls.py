"""The addresses under /api/v1, without trailing slashes."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import path, re_path
from django.views.decorators.csrf import csrf_exempt

from jobs.api import (
    artifacts,
    audit,
    audit_entries,
    backfills,
    bulk,
    calendars,
    dead_letters,
    docs,
    execution_status,
    executions,
    fleet,
    jobs,
    log_search,
    problems,
    queues,
    schedules,
    secrets,
    teams,
    tokens,
    usage,
    webhooks,
    worker_runs,
    worker_standing,
)
from jobs.api.schema import BearerTokenScheme

# Known to drf-spectacular by having been imported.
SCHEMES = [BearerTokenScheme]


@csrf_exempt
def nothing_here(request: HttpRequest) -> HttpResponse:
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
    path("executions/<uuid:execution_id>/logs", worker_runs.ExecutionLogs.as_view()),
    path("executions/<uuid:execution_id>/outputs", worker_runs.ExecutionOutputs.as_view()),
    path("executions/<uuid:execution_id>/start", worker_runs.ExecutionStart.as_view()),
    path("executions/<uuid:execution_id>/complete", worker_runs.ExecutionComplete.as_view()),
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
    path("audit/firings", audit.Firings.as_view()),
    path("logs/search", log_search.LogsSearch.as_view()),
    path("workers", fleet.Workers.as_view()),
    path("workers/terms", worker_standing.WorkerTerms.as_view()),
    path("workers/register", worker_standing.WorkerRegister.as_view()),
    path("workers/<uuid:worker_id>", fleet.WorkerDetail.as_view()),
    path("workers/<uuid:worker_id>/heartbeat", worker_standing.WorkerHeartbeat.as_view()),
    path("workers/<uuid:worker_id>/claim", worker_standing.WorkerClaim.as_view()),
    path("workers/<uuid:worker_id>/drain", worker_standing.WorkerDrain.as_view()),
    path("workers/<uuid:worker_id>/leave", worker_standing.WorkerLeave.as_view()),
    path("usage", usage.Usage.as_view()),
    path("queues", queues.Queues.as_view()),
    path("queues/<uuid:queue_id>", queues.QueueDetail.as_view()),
    path("schema", docs.Schema.as_view(), name="schema"),
    path("docs", docs.Docs.as_view(url_name="schema"), name="docs"),
    # Also while DEBUG shows its own pages for addresses that do not exist.
    re_path("", nothing_here),
]
