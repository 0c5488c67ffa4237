"""Finds connections to services that leave the machine unencrypted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from urllib.parse import urlsplit

from jobs.domain.loopback import is_loopback
from scheduler_project.settings.database import parse_database_url
from scheduler_project.settings.environment import Environment

ENCRYPTED_MODES = {"require", "verify-ca", "verify-full"}


@dataclass(frozen=True, slots=True)
class PlaintextLink:
    """An unencrypted link; `name` is its word in PUNCTUAL_ALLOW_PLAINTEXT, `remedy` the way to encrypt it."""

    name: str
    variable: str
    remedy: str


def find_plaintext_links(environment: Environment) -> list[PlaintextLink]:
    """Return the plaintext links that PUNCTUAL_ALLOW_PLAINTEXT does not allow."""
    return [link for link in _iter_plaintext_links(environment) if link.name not in environment.allow_plaintext]


def _iter_plaintext_links(environment: Environment) -> Iterator[PlaintextLink]:
    if _is_plain_postgres(environment.database_url.get_secret_value()):
        yield PlaintextLink("postgres", "DATABASE_URL", "add ?sslmode=verify-full (or at least require)")
    redis = urlsplit(environment.redis_url.get_secret_value())
    if redis.scheme == "redis" and not is_loopback(redis.hostname or "localhost"):
        yield PlaintextLink("redis", "REDIS_URL", "write it as rediss://")
    for variable, url in (
        _find_s3_endpoint(environment),
        ("S3_PUBLIC_ENDPOINT_URL", environment.s3_public_endpoint_url),
    ):
        if _is_plain_http(url or ""):
            yield PlaintextLink("s3", variable, "write it as https://")


def _is_plain_postgres(url: str) -> bool:
    """Check the URL together with libpq's environment variables, which fill in missing options."""
    parsed = parse_database_url(url)
    options = parsed.get("OPTIONS", {})
    service = options.get("service") or os.environ.get("PGSERVICE")
    # A service file overrides the environment but not the URL.
    mode = options.get("sslmode") or ("" if service else os.environ.get("PGSSLMODE"))
    if mode in ENCRYPTED_MODES:
        return False
    hosts = parsed["HOST"] or options.get("host") or os.environ.get("PGHOST", "")
    # An address takes precedence over its host name.
    addresses = options.get("hostaddr") or os.environ.get("PGHOSTADDR", "")
    pairs = zip_longest(hosts.split(","), addresses.split(","), fillvalue="")
    return bool(service) or any(_is_remote(address or host) for host, address in pairs)


def _is_remote(host: str) -> bool:
    """Check whether a host is another machine; a path or an empty host is a local socket."""
    return bool(host) and not host.startswith(("/", "@")) and not is_loopback(host)


def _find_s3_endpoint(environment: Environment) -> tuple[str, str | None]:
    """Return variable and value of the endpoint; without ours, boto3 reads its own variables."""
    candidates = [("S3_ENDPOINT_URL", environment.s3_endpoint_url)]
    candidates += [(name, os.environ.get(name)) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")]
    return next((each for each in candidates if each[1]), candidates[0])


def _is_plain_http(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")
