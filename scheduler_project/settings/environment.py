"""Configuration from environment variables, typed and validated once at start.

Every variable that a Punctual process reads is a field here; `docs/configuration.md` lists them.
"""

from __future__ import annotations

import os
from functools import lru_cache
from ipaddress import ip_network
from typing import TYPE_CHECKING, Annotated, Literal

from django.core.exceptions import ImproperlyConfigured
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from jobs.domain.encryption import Keyring
from jobs.domain.packing import parse_amounts
from jobs.notifications.webhooks.address_policy import AddressPolicy, parse_networks
from scheduler_project.settings.database import parse_database_url

if TYPE_CHECKING:
    from workers.sandbox.network.rules import NetworkRules

DEVELOPMENT_SECRET_KEY = "insecure-development-key-never-use-it-in-production"  # noqa: S105 - refused in production

DEFAULT_LOG_DAYS = 14.0
# Links that PUNCTUAL_ALLOW_PLAINTEXT can allow; `http` is for REST workers and the command line.
LINK_NAMES = ("postgres", "redis", "s3", "http")

CommaSeparated = Annotated[tuple[str, ...], NoDecode]


class Environment(BaseSettings):
    model_config = SettingsConfigDict(frozen=True, extra="ignore", case_sensitive=True, env_ignore_empty=True)

    mode: Literal["production", "development"] = Field("production", validation_alias="PUNCTUAL_ENV")
    secret_key: SecretStr = Field(SecretStr(DEVELOPMENT_SECRET_KEY), validation_alias="SECRET_KEY")
    secrets_keys: SecretStr | None = Field(None, validation_alias="PUNCTUAL_SECRETS_KEYS")
    debug: bool = Field(False, validation_alias="DEBUG")
    https: bool = Field(True, validation_alias="PUNCTUAL_HTTPS")
    allowed_hosts: CommaSeparated = Field((), validation_alias="ALLOWED_HOSTS")
    csrf_trusted_origins: CommaSeparated = Field((), validation_alias="CSRF_TRUSTED_ORIGINS")
    trusted_proxies: CommaSeparated = Field((), validation_alias="PUNCTUAL_TRUSTED_PROXIES")
    allow_plaintext: CommaSeparated = Field((), validation_alias="PUNCTUAL_ALLOW_PLAINTEXT")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", validation_alias="PUNCTUAL_LOG_LEVEL")

    database_url: SecretStr = Field(validation_alias="DATABASE_URL")
    database_pool_size: int = Field(8, ge=1, le=200, validation_alias="DATABASE_POOL_SIZE")
    database_statement_seconds: float = Field(10, ge=1, le=3600, validation_alias="DATABASE_STATEMENT_SECONDS")
    database_prepares_statements: bool = Field(default=True, validation_alias="DATABASE_PREPARE_STATEMENTS")
    redis_url: SecretStr = Field(validation_alias="REDIS_URL")

    s3_endpoint_url: str | None = Field(None, validation_alias="S3_ENDPOINT_URL")
    s3_public_endpoint_url: str | None = Field(None, validation_alias="S3_PUBLIC_ENDPOINT_URL")
    s3_bucket: str = Field(min_length=3, max_length=63, validation_alias="S3_BUCKET")
    s3_region: str = Field("us-east-1", validation_alias="S3_REGION")
    s3_access_key_id: str | None = Field(None, validation_alias="S3_ACCESS_KEY_ID")
    s3_secret_access_key: SecretStr | None = Field(None, validation_alias="S3_SECRET_ACCESS_KEY")
    s3_checksums: Literal["when_supported", "when_required"] = Field("when_required", validation_alias="S3_CHECKSUMS")

    flower_basic_auth: SecretStr | None = Field(None, validation_alias="FLOWER_BASIC_AUTH")
    flower_auth_provider: str | None = Field(None, validation_alias="FLOWER_AUTH_PROVIDER")

    lease_seconds: float = Field(30, ge=3, le=600, validation_alias="PUNCTUAL_LEASE_SECONDS")
    renew_seconds: float = Field(5, ge=0.2, le=120, validation_alias="PUNCTUAL_RENEW_SECONDS")
    beat_max_sleep_seconds: float = Field(0.5, ge=0.01, le=60, validation_alias="PUNCTUAL_BEAT_MAX_SLEEP_SECONDS")
    worker_retention_days: float = Field(7, ge=1, le=36_500, validation_alias="PUNCTUAL_WORKER_RETENTION_DAYS")
    retention_days: float = Field(90, ge=1, le=36_500, validation_alias="PUNCTUAL_RETENTION_DAYS")
    audit_days: float = Field(400, ge=1, le=36_500, validation_alias="PUNCTUAL_AUDIT_DAYS")
    log_days: float | None = Field(None, ge=1, validation_alias="PUNCTUAL_LOG_DAYS")
    log_max_mb: int = Field(0, ge=0, validation_alias="PUNCTUAL_LOG_MAX_MB")

    owner_storage_mb: int = Field(10_240, ge=0, le=10**9, validation_alias="PUNCTUAL_OWNER_STORAGE_MB")
    owner_jobs: int = Field(0, ge=0, le=10**9, validation_alias="PUNCTUAL_OWNER_JOBS")
    owner_backlog: int = Field(100_000, ge=0, le=10**7, validation_alias="PUNCTUAL_OWNER_BACKLOG")
    owner_concurrency: int = Field(0, ge=0, le=10**9, validation_alias="PUNCTUAL_OWNER_CONCURRENCY")
    token_days: int = Field(90, ge=0, le=36_500, validation_alias="PUNCTUAL_TOKEN_DAYS")
    worker_token_days: int = Field(365, ge=0, le=36_500, validation_alias="PUNCTUAL_WORKER_TOKEN_DAYS")
    requests_per_minute: int = Field(6000, ge=0, le=10**6, validation_alias="PUNCTUAL_REQUESTS_PER_MINUTE")
    status_cache_seconds: float = Field(1, ge=0, le=1, validation_alias="PUNCTUAL_STATUS_CACHE_SECONDS")
    job_backlog: int = Field(1000, ge=0, le=10**6, validation_alias="PUNCTUAL_JOB_BACKLOG")
    job_dependents: int = Field(10_000, ge=0, le=10**6, validation_alias="PUNCTUAL_JOB_DEPENDENTS")
    waiting_claims: int = Field(2000, ge=0, le=100_000, validation_alias="PUNCTUAL_WAITING_CLAIMS")
    waiting_followers: int = Field(2000, ge=0, le=100_000, validation_alias="PUNCTUAL_WAITING_FOLLOWERS")
    expensive_reads: int = Field(2, ge=1, le=1000, validation_alias="PUNCTUAL_EXPENSIVE_READS")
    waiting_followers_each: int | None = Field(None, ge=1, validation_alias="PUNCTUAL_WAITING_FOLLOWERS_EACH")

    webhook_http: bool = Field(False, validation_alias="PUNCTUAL_WEBHOOK_HTTP")
    webhook_networks: CommaSeparated = Field((), validation_alias="PUNCTUAL_WEBHOOK_NETWORKS")

    worker_name: str | None = Field(None, max_length=120, validation_alias="PUNCTUAL_WORKER_NAME")
    worker_pool: str = Field("default", max_length=63, validation_alias="PUNCTUAL_WORKER_POOL")
    worker_slots: int | None = Field(None, ge=1, le=10_000, validation_alias="PUNCTUAL_WORKER_SLOTS")
    worker_cpu: float | None = Field(None, gt=0, validation_alias="PUNCTUAL_WORKER_CPU")
    worker_memory_mb: int | None = Field(None, ge=16, validation_alias="PUNCTUAL_WORKER_MEMORY_MB")
    worker_disk_mb: int | None = Field(None, ge=16, validation_alias="PUNCTUAL_WORKER_DISK_MB")
    worker_resources: Annotated[dict[str, int], NoDecode] = Field({}, validation_alias="PUNCTUAL_WORKER_RESOURCES")
    worker_network: bool = Field(False, validation_alias="PUNCTUAL_WORKER_NETWORK")
    worker_network_allow: CommaSeparated = Field((), validation_alias="PUNCTUAL_WORKER_NETWORK_ALLOW")
    worker_network_dns: CommaSeparated = Field((), validation_alias="PUNCTUAL_WORKER_NETWORK_DNS")
    worker_state_dir: str = Field("var/worker", validation_alias="PUNCTUAL_WORKER_STATE_DIR")
    worker_drain_seconds: float = Field(60, ge=0, validation_alias="PUNCTUAL_WORKER_DRAIN_SECONDS")
    worker_cache_mb: int = Field(2048, ge=1, validation_alias="PUNCTUAL_WORKER_CACHE_MB")
    worker_allow_weak_sandbox: bool = Field(False, validation_alias="PUNCTUAL_WORKER_ALLOW_WEAK_SANDBOX")
    workers_on_host: int = Field(1, ge=1, le=1000, validation_alias="PUNCTUAL_WORKERS_ON_HOST")

    @field_validator(
        "allowed_hosts",
        "csrf_trusted_origins",
        "trusted_proxies",
        "allow_plaintext",
        "webhook_networks",
        "worker_network_allow",
        "worker_network_dns",
        mode="before",
    )
    @classmethod
    def split_commas(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("worker_resources", mode="before")
    @classmethod
    def split_amounts(cls, value: object) -> object:
        return parse_amounts(value) if isinstance(value, str) else value

    @field_validator("secrets_keys")
    @classmethod
    def validate_secrets_keys(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            Keyring.parse(value.get_secret_value())
        return value

    @field_validator("database_url")
    @classmethod
    def validate_database_url(cls, value: SecretStr) -> SecretStr:
        try:
            engine = parse_database_url(value.get_secret_value()).get("ENGINE", "")
        except ValueError as error:
            raise ValueError("is not a URL; write postgres://user:password@host:5432/name") from error
        if engine != "django.db.backends.postgresql":
            raise ValueError("must be a Postgres URL: postgres://user:password@host:5432/name")
        return value

    @field_validator("redis_url")
    @classmethod
    def validate_redis_url(cls, value: SecretStr) -> SecretStr:
        if not value.get_secret_value().startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("must start with redis://, rediss:// or unix://")
        return value

    @field_validator("renew_seconds")
    @classmethod
    def validate_renew_seconds(cls, value: float, info: object) -> float:
        lease = getattr(info, "data", {}).get("lease_seconds")
        if lease is not None and value * 3 > lease:
            raise ValueError(
                f"must be at most a third of PUNCTUAL_LEASE_SECONDS ({lease:g}), so that one lost renewal is harmless"
            )
        return value

    @field_validator("log_days")
    @classmethod
    def validate_log_days(cls, value: float | None, info: object) -> float | None:
        retention = getattr(info, "data", {}).get("retention_days")
        if value is not None and retention is not None and value > retention:
            raise ValueError(f"must be at most PUNCTUAL_RETENTION_DAYS ({retention:g})")
        return value

    @field_validator("webhook_networks")
    @classmethod
    def validate_webhook_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        parse_networks(value)
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def validate_trusted_proxies(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return tuple(str(ip_network(text)) for text in value)
        except ValueError:
            raise ValueError("must be addresses or ranges of proxies, such as 10.0.0.5,10.1.0.0/16") from None

    @field_validator("allow_plaintext")
    @classmethod
    def validate_allow_plaintext(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := set(value) - set(LINK_NAMES):
            raise ValueError(
                f"names {', '.join(sorted(unknown))}; it may name {', '.join(LINK_NAMES)}, separated by commas"
            )
        return value

    @field_validator("worker_network_allow")
    @classmethod
    def validate_network_allow(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        _parse_network_rules(value, ())
        return value

    @field_validator("worker_network_dns")
    @classmethod
    def validate_network_dns(cls, value: tuple[str, ...], info: object) -> tuple[str, ...]:
        allowed = getattr(info, "data", {}).get("worker_network_allow")
        if allowed is not None:
            _parse_network_rules(allowed, value)
        return value

    @property
    def effective_log_days(self) -> float:
        return min(DEFAULT_LOG_DAYS, self.retention_days) if self.log_days is None else self.log_days

    @property
    def effective_waiting_followers_each(self) -> int:
        return -(-self.waiting_followers // 2) if self.waiting_followers_each is None else self.waiting_followers_each

    @property
    def webhook_reach(self) -> AddressPolicy:
        return AddressPolicy(parse_networks(self.webhook_networks), http=self.webhook_http)

    @property
    def worker_network_rules(self) -> NetworkRules | None:
        return _parse_network_rules(self.worker_network_allow, self.worker_network_dns) if self.worker_network else None

    @property
    def celery_broker_url(self) -> str:
        """Return the Redis URL in kombu's syntax, which has another scheme for Unix sockets."""
        url = self.redis_url.get_secret_value()
        if not url.startswith("unix://"):
            return url
        path, _, query = url.removeprefix("unix://").partition("?")
        return f"redis+socket://{path}" + (f"?{query.replace('db=', 'virtual_host=')}" if query else "")


def _parse_network_rules(allowed: tuple[str, ...], resolvers: tuple[str, ...]) -> NetworkRules:
    from workers.sandbox.network.rules import NetworkRules  # noqa: PLC0415  (only a worker with a network needs it)

    return NetworkRules.parse(allowed, resolvers)


@lru_cache(maxsize=1)
def read_environment() -> Environment:
    try:
        return Environment()  # type: ignore[call-arg]  # the fields come from the environment
    except ValidationError as error:
        raise ImproperlyConfigured(format_validation_error(error)) from None


def format_validation_error(error: ValidationError) -> str:
    """Return one line per variable, without values, which may be secrets."""
    lines = []
    for problem in error.errors(include_url=False, include_input=False):
        name = str(problem["loc"][0]) if problem["loc"] else "environment"
        missing = problem["type"] == "missing"
        message = "is not set" if missing else problem["msg"].removeprefix("Value error, ")
        lines.append(f"  {name} {message}" if missing or name in os.environ else f"  {name}: {message}")
    return "The environment is not a valid configuration:\n" + "\n".join(lines) + "\nSee docs/configuration.md."
