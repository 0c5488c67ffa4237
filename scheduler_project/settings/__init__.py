"""Django's settings, derived only from the environment."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from scheduler_project.settings.celery import *  # noqa: F403 - Celery reads its settings from here by their CELERY_ prefix
from scheduler_project.settings.database import build_database_settings
from scheduler_project.settings.environment import read_environment
from scheduler_project.settings.openapi import SPECTACULAR_SETTINGS as SPECTACULAR_SETTINGS
from workers.configuration import WorkerSettings

environment = read_environment()
ROOT = Path(__file__).resolve().parents[2]

DEBUG = environment.debug
SECRET_KEY = environment.secret_key.get_secret_value()
ALLOWED_HOSTS = list(environment.allowed_hosts)
CSRF_TRUSTED_ORIGINS = list(environment.csrf_trusted_origins)
ROOT_URLCONF = "scheduler_project.urls"
ASGI_APPLICATION = "scheduler_project.asgi.application"

INSTALLED_APPS = [
    "scheduler_project.admin_site.apps.AuditedAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "scheduler_project.admin_site.apps.SystemTasksConfig",
    "django_celery_results",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "scheduler_project",
    "jobs",
]

MIDDLEWARE = [
    "jobs.api.framework.deferred_response.BlockingMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "jobs.api.framework.request_actor.ActorMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASES = {
    "default": build_database_settings(
        environment.database_url.get_secret_value(),
        pool_size=environment.database_pool_size,
        statement_seconds=environment.database_statement_seconds,
        prepares_statements=environment.database_prepares_statements,
    )
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTHENTICATION_BACKENDS = ["scheduler_project.accounts.permission_backend.OperatorBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]

LANGUAGE_CODE = "en-us"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"
FORMAT_MODULE_PATH = ["scheduler_project.formats"]

STATIC_URL = "static/"
# Whitenoise serves the apps' static files in place, without collectstatic.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = environment.debug

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = environment.https
SECURE_HSTS_SECONDS = int(timedelta(days=30).total_seconds()) if environment.https else 0
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if environment.https else None
X_FRAME_OPTIONS = "DENY"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "docs"
DATA_UPLOAD_MAX_MEMORY_SIZE = 8 * 1024 * 1024

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "jobs.api.framework.authentication.BearerTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["jobs.api.framework.permissions.RequiredScopePermission"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PAGINATION_CLASS": "jobs.api.framework.pagination.NewestFirstPagination",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "jobs.api.framework.problems.problem_response",
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "jobs.telemetry.outage_log.OutageHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": environment.log_level},
    "loggers": {
        "botocore": {"level": "WARNING"},
        "boto3": {"level": "WARNING"},
        # The pool logs each attempt to connect; the caller gets the reason in its exception.
        "psycopg.pool": {"level": "ERROR"},
    },
}

PUNCTUAL_LEASE_SECONDS = environment.lease_seconds
PUNCTUAL_RENEW_SECONDS = environment.renew_seconds
PUNCTUAL_BEAT_MAX_SLEEP_SECONDS = environment.beat_max_sleep_seconds
PUNCTUAL_RETENTION_DAYS = environment.retention_days
PUNCTUAL_WORKER_RETENTION_DAYS = environment.worker_retention_days
PUNCTUAL_AUDIT_DAYS = environment.audit_days
PUNCTUAL_TRUSTED_PROXIES = environment.trusted_proxies
PUNCTUAL_LOG_DAYS = environment.effective_log_days
PUNCTUAL_LOG_MAX_MB = environment.log_max_mb
PUNCTUAL_SECRETS_KEYS = environment.secrets_keys.get_secret_value() if environment.secrets_keys else ""
PUNCTUAL_OWNER_STORAGE_MB = environment.owner_storage_mb
PUNCTUAL_OWNER_JOBS = environment.owner_jobs
PUNCTUAL_OWNER_BACKLOG = environment.owner_backlog
PUNCTUAL_JOB_BACKLOG = environment.job_backlog
PUNCTUAL_JOB_DEPENDENTS = environment.job_dependents
PUNCTUAL_OWNER_CONCURRENCY = environment.owner_concurrency
PUNCTUAL_TOKEN_DAYS = environment.token_days
PUNCTUAL_WORKER_TOKEN_DAYS = environment.worker_token_days
PUNCTUAL_REQUESTS_PER_MINUTE = environment.requests_per_minute
PUNCTUAL_STATUS_CACHE_SECONDS = environment.status_cache_seconds
PUNCTUAL_WEBHOOK_REACH = environment.webhook_reach
PUNCTUAL_WAITING_CLAIMS = environment.waiting_claims
PUNCTUAL_EXPENSIVE_READS = environment.expensive_reads
PUNCTUAL_WAITING_FOLLOWERS = environment.waiting_followers
PUNCTUAL_WAITING_FOLLOWERS_EACH = environment.effective_waiting_followers_each
PUNCTUAL_REDIS_URL = environment.redis_url.get_secret_value()
PUNCTUAL_S3_BUCKET = environment.s3_bucket
PUNCTUAL_S3_ENDPOINT_URL = environment.s3_endpoint_url
PUNCTUAL_S3_PUBLIC_ENDPOINT_URL = environment.s3_public_endpoint_url
PUNCTUAL_S3_REGION = environment.s3_region
PUNCTUAL_S3_ACCESS_KEY_ID = environment.s3_access_key_id
PUNCTUAL_S3_SECRET_ACCESS_KEY = (
    environment.s3_secret_access_key.get_secret_value() if environment.s3_secret_access_key else None
)
PUNCTUAL_S3_CHECKSUMS = environment.s3_checksums
PUNCTUAL_WORKER = WorkerSettings(
    name=environment.worker_name,
    pool=environment.worker_pool,
    slots=environment.worker_slots,
    cpu=environment.worker_cpu,
    memory_mb=environment.worker_memory_mb,
    disk_mb=environment.worker_disk_mb,
    state_dir=environment.worker_state_dir,
    drain_seconds=environment.worker_drain_seconds,
    cache_mb=environment.worker_cache_mb,
    resources=environment.worker_resources,
    workers_on_host=environment.workers_on_host,
    allow_weak_sandbox=environment.worker_allow_weak_sandbox,
    network=environment.worker_network_rules,
)
