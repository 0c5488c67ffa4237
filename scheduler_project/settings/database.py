"""Django's DATABASES: connections to Postgres and their timeouts."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit, urlunsplit

import dj_database_url
from psycopg import IsolationLevel

from jobs.db.read_timeout import TIMEOUT_GRACE_SECONDS, TimeoutConnection

POSTGRES_PORT = "5432"
# Maximum age of a connection; the next one resolves the host name again.
MAX_LIFETIME_SECONDS = 600.0
MAX_IDLE_SECONDS = 120.0
LOCK_TIMEOUT_SECONDS = 5.0
PREPARE_THRESHOLD_USES = 5


def parse_database_url(url: str) -> dict[str, Any]:
    """Parse like dj_database_url, plus ports of several hosts as in libpq's URLs."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    if "," not in hosts:
        return {**dj_database_url.parse(url)}
    pairs = [_split_host_and_port(host) for host in hosts.split(",")]
    parsed = {**dj_database_url.parse(urlunsplit(parts._replace(netloc=f"{user}{at}{pairs[0][0]}")))}
    parsed["HOST"] = ",".join(host.strip("[]") for host, _ in pairs)
    parsed["PORT"] = ",".join(port or POSTGRES_PORT for _, port in pairs)
    return parsed


def _split_host_and_port(text: str) -> tuple[str, str]:
    """Split off the port: `[::1]:5432` has one, `[::1]` has none."""
    host, colon, port = text.rpartition(":")
    return (host, port) if colon and not port.endswith("]") else (text, "")


def build_session_options(statement_seconds: float) -> str:
    """Return the startup options with the defaults of every session."""
    return (
        f"-c statement_timeout={statement_seconds * 1000:.0f}"
        f" -c lock_timeout={LOCK_TIMEOUT_SECONDS * 1000:.0f}"
        f" -c idle_in_transaction_session_timeout={statement_seconds * 3000:.0f}"
        # Our statements are written for this level, whatever the server's default.
        r" -c default_transaction_isolation=read\ committed"
    )


def build_database_settings(
    url: str, *, pool_size: int, statement_seconds: float, prepares_statements: bool = True
) -> dict[str, Any]:
    """Return the settings of a pool: a worker has thousands of threads and a few connections."""
    parsed = parse_database_url(url)
    given = parsed.get("OPTIONS", {})
    has_several_hosts = "," in (parsed["HOST"] or given.get("host", ""))
    own_options = build_session_options(statement_seconds)
    # The pool calls the class to open a connection, so its parameters are class attributes.
    connection_class = type(
        "ConfiguredTimeoutConnection",
        (TimeoutConnection,),
        {"read_timeout_seconds": statement_seconds + TIMEOUT_GRACE_SECONDS, "own_options": own_options},
    )
    return {
        **parsed,
        "ENGINE": "scheduler_project.db_backend",
        "CONN_MAX_AGE": 0,
        # Django's check costs a round trip per checkout; the check of our backend costs none.
        "CONN_HEALTH_CHECKS": False,
        "DISABLE_SERVER_SIDE_CURSORS": True,
        "OPTIONS": {
            # With several servers, use the writable one. Not with a single one: PgBouncer keeps reporting the state its
            # server had at first, so it could be refused forever.
            **({"target_session_attrs": "read-write"} if has_several_hosts else {}),
            "connect_timeout": 5,
            # Notice a vanished host in seconds, not when the kernel gives up.
            "tcp_user_timeout": 10_000,
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            **given,
            "options": f"{own_options} {given.get('options', '')}".strip(),
            "isolation_level": IsolationLevel.READ_COMMITTED,
            # After this many uses on a connection; rare statements are not worth the memory of every server process.
            "prepare_threshold": PREPARE_THRESHOLD_USES if prepares_statements else None,
            "pool": {
                "min_size": 1,
                "max_size": pool_size,
                "timeout": 4,
                "max_lifetime": MAX_LIFETIME_SECONDS,
                "max_idle": MAX_IDLE_SECONDS,
                # The pool's growing pauses would notice the end of an outage late: give up after two seconds, and let
                # the next request for a connection start again.
                "reconnect_timeout": 2,
                "connection_class": connection_class,
            },
        },
    }
