"""`./punctual worker`: run a worker of a Punctual server on another machine.

Every problem is reported as one sentence and a non-zero exit code.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from jobs.domain.errors import PunctualError
from jobs.domain.packing import parse_amounts
from jobs.telemetry.outage_log import OutageHandler
from workers.configuration import WorkerSettings
from workers.control_plane.http import is_plaintext_refused
from workers.remote.worker import RemoteWorker
from workers.sandbox.errors import SandboxUnavailable
from workers.sandbox.network.rules import NetworkRules

CHECKOUT = Path(__file__).resolve().parents[2]
INTERRUPTED_EXIT_CODE = 130

logger = logging.getLogger(__name__)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def worker(  # noqa: PLR0917 - typer calls it by name
    url: Annotated[
        str, typer.Option(envvar="PUNCTUAL_URL", help="URL of the Punctual server: https://punctual.example.")
    ],
    token: Annotated[
        str,
        typer.Option(
            envvar="PUNCTUAL_WORKER_TOKEN",
            help="Token of scope worker. Other users of this machine cannot see it in the environment.",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(envvar="PUNCTUAL_WORKER_NAME", help="Unique among workers. (default: the host's name)"),
    ] = None,
    pool: Annotated[
        str, typer.Option(envvar="PUNCTUAL_WORKER_POOL", help="Serve the queues of this pool.")
    ] = "default",
    slots: Annotated[
        int | None,
        typer.Option(envvar="PUNCTUAL_WORKER_SLOTS", min=1, max=10_000, help="Runs at once. (default: 4 per cpu)"),
    ] = None,
    cpu: Annotated[
        float | None,
        typer.Option(envvar="PUNCTUAL_WORKER_CPU", min=0.01, help="CPUs to offer. (default: all)"),
    ] = None,
    memory_mb: Annotated[
        int | None,
        typer.Option(envvar="PUNCTUAL_WORKER_MEMORY_MB", min=16, help="Memory to offer. (default: four fifths)"),
    ] = None,
    disk_mb: Annotated[
        int | None, typer.Option(envvar="PUNCTUAL_WORKER_DISK_MB", min=16, help="Disk space to offer. (default: half)")
    ] = None,
    workers_on_host: Annotated[
        int,
        typer.Option(
            envvar="PUNCTUAL_WORKERS_ON_HOST", min=1, max=1000, help="Workers that share this machine equally."
        ),
    ] = 1,
    resource: Annotated[
        list[str] | None,
        typer.Option(
            envvar="PUNCTUAL_WORKER_RESOURCES", help="Other resource that jobs may request: gpu=1 (repeatable)."
        ),
    ] = None,
    network: Annotated[
        bool,
        typer.Option(
            "--network", envvar="PUNCTUAL_WORKER_NETWORK", help="Give permitted jobs a network if they request one."
        ),
    ] = False,
    network_allow: Annotated[
        list[str] | None,
        typer.Option(envvar="PUNCTUAL_WORKER_NETWORK_ALLOW", help="IPv4 range that jobs may reach (repeatable)."),
    ] = None,
    network_dns: Annotated[
        list[str] | None,
        typer.Option(
            envvar="PUNCTUAL_WORKER_NETWORK_DNS", help="DNS resolver for jobs (repeatable). (default: this machine's)"
        ),
    ] = None,
    state_dir: Annotated[
        Path,
        typer.Option(envvar="PUNCTUAL_WORKER_STATE_DIR", help="Cached artifacts and lock; one directory per worker."),
    ] = CHECKOUT / "var" / "worker",
    cache_mb: Annotated[
        int, typer.Option(envvar="PUNCTUAL_WORKER_CACHE_MB", min=1, help="Size of the artifact cache.")
    ] = 2048,
    drain_seconds: Annotated[
        float,
        typer.Option(
            envvar="PUNCTUAL_WORKER_DRAIN_SECONDS", min=0, help="Time for runs to finish after a stop signal."
        ),
    ] = 60.0,
    allow_weak_sandbox: Annotated[
        bool,
        typer.Option(
            "--allow-weak-sandbox",
            envvar="PUNCTUAL_WORKER_ALLOW_WEAK_SANDBOX",
            help="Accept jobs that do not require untrusted-ok even if the sandbox self-test fails.",
        ),
    ] = False,
    ca_file: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="PEM file of certificates to trust in addition to the system's."
        ),
    ] = None,
) -> None:
    """Run jobs of a remote Punctual server on this machine, until Ctrl-C or SIGTERM.

    The worker needs the server's URL and a token, but no database, Redis or storage credentials. Create the token on
    the server, with `manage.py create_worker_token` or in the admin.
    """
    _check_url(url)
    token = _validate_token(token)
    settings = WorkerSettings(
        name=name,
        pool=pool,
        slots=slots,
        cpu=cpu,
        memory_mb=memory_mb,
        disk_mb=disk_mb,
        state_dir=str(state_dir),
        drain_seconds=drain_seconds,
        cache_mb=cache_mb,
        resources=_parse_resources(resource or []),
        workers_on_host=workers_on_host,
        allow_weak_sandbox=allow_weak_sandbox,
        network=_parse_network_rules(network_allow or [], network_dns or []) if network else None,
    )
    problem = RemoteWorker(settings, url=url, token=token, ca_file=str(ca_file) if ca_file else None).run()
    if problem:
        raise PunctualError(problem)


def _parse_network_rules(allowed: list[str], resolvers: list[str]) -> NetworkRules:
    try:
        return NetworkRules.parse(_split_values(allowed), _split_values(resolvers))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--network-allow or --network-dns") from error


def _split_values(values: list[str]) -> list[str]:
    """Split comma-separated values, as in an environment variable."""
    return [part.strip() for word in values for part in word.split(",") if part.strip()]


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise typer.BadParameter("write an address such as https://punctual.example", param_hint="--url")
    if is_plaintext_refused(url, "http"):
        raise typer.BadParameter(
            f"{url} is not https: the token and the inputs of jobs would be readable on the network."
            " Use https, or allow plaintext with PUNCTUAL_ALLOW_PLAINTEXT=http",
            param_hint="--url",
        )


def _validate_token(token: str) -> str:
    """Return the token without surrounding space; errors do not quote it, as they end up in logs."""
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise typer.BadParameter(
            "not a valid token: it is empty or contains spaces or special characters", param_hint="--token"
        )
    return token


def _parse_resources(values: list[str]) -> dict[str, int]:
    try:
        return parse_amounts(",".join(values))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--resource") from None


def main() -> None:
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(level=logging.INFO, format=form, handlers=[OutageHandler()])
    # httpx logs every URL, and the presigned ones grant access.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        app(prog_name="./punctual worker")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED_EXIT_CODE)
    except (PunctualError, SandboxUnavailable, OSError) as error:
        sys.exit(f"punctual worker: {error}")


if __name__ == "__main__":
    main()
