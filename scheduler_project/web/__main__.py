"""Runs the web server: `python -m scheduler_project.web [granian options]`."""

from __future__ import annotations

import resource
import sys

from granian.cli import entrypoint

MAX_CONNECTIONS = 8192
# For files and for connections to the database, Redis and the object store, per process.
RESERVED_FILES = 512
# Closes idle connections and those that send headers slowly.
HEADER_TIMEOUT_SECONDS = 30
MAX_HEADER_BYTES = 64 * 1024
# Waiting and following clients would otherwise delay the end of a process by up to a minute.
STOP_TIMEOUT_SECONDS = 5
APPLICATION = "scheduler_project.asgi:application"


def raise_open_file_limit() -> int:
    """Raise the soft limit of open files to the hard one, since each client is one, and return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MAX_CONNECTIONS + RESERVED_FILES if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return files


def build_granian_options(files: int) -> list[str]:
    """Return options for granian; options on the command line override them."""
    return [
        *("--interface", "asgi", "--host", "127.0.0.1", "--port", "8000"),
        # HTTP/2 has no header timeout and allows many requests per connection.
        *("--http", "1", "--no-ws"),
        # Granian's backpressure counts all connections, including idle ones.
        *("--backpressure", str(min(MAX_CONNECTIONS, max(files - RESERVED_FILES, files // 2))), "--backlog", "2048"),
        *(
            "--http1-header-read-timeout",
            str(HEADER_TIMEOUT_SECONDS * 1000),
            "--http1-buffer-size",
            str(MAX_HEADER_BYTES),
        ),
        *("--workers-kill-timeout", str(STOP_TIMEOUT_SECONDS), "--respawn-failed-workers"),
    ]


def main() -> None:
    sys.argv[1:] = [*build_granian_options(raise_open_file_limit()), *sys.argv[1:], APPLICATION]
    entrypoint()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
