"""`./punctual worker`: makes this machine a worker of a Punctual that runs elsewhere.

Every problem leaves as one sentence and a non-zero exit.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from jobs.errors import PunctualError
from jobs.planning import parse_amounts
from workers.configuration import WorkerSettings
from workers.remote_worker import RemoteWorker
from workers.rest_transport import LOOPBACK
from workers.sandbox import NetworkRules, SandboxUnavailable

CHECKOUT = Path(__file__).resolve().parents[1]
INTERRUPTED = 130

logger = logging.getLogger(__name__)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def worker(  # noqa: PLR0917 - typer calls it by name
    url: Annotated[str, typer.Option(envvar="PUNCTUAL_URL", help="The address of Punctual: https://punctual.example.")],
    token: Annotated[
        str,
        typer.Option(
            envvar="PUNCTUAL_WORKER_TOKEN",
            help="A token of scope worker. In the environment, other users of this machine do not see it.",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(envvar="PUNCTUAL_WORKER_NAME", help="Unique among workers. (default: the host's name)"),
    ] = None,
    pool: Annotated[str, typer.Option(envvar="PUNCTUAL_WORKER_POOL", help="Whose queues it serves.")] = "default",
    slots: Annotated[
        int | None,
        typer.Option(envvar="PUNCTUAL_WORKER_SLOTS", min=1, max=10_000, help="Runs at once. (default: 4 per cpu)"),
    ] = None,
    cpu: Annotated[
        float | None,
        typer.Option(envvar="PUNCTUAL_WORKER_CPU", min=0.01, help="What it offers. (default: all there are)"),
    ] = None,
    memory_mb: Annotated[
        int | None,
        typer.Option(envvar="PUNCTUAL_WORKER_MEMORY_MB", min=16, help="What it offers. (default: four fifths)"),
    ] = None,
    disk_mb: Annotated[
        int | None, typer.Option(envvar="PUNCTUAL_WORKER_DISK_MB", min=16, help="What it offers. (default: half)")
    ] = None,
    workers_on_host: Annotated[
        int,
        typer.Option(envvar="PUNCTUAL_WORKERS_ON_HOST", min=1, max=1000, help="Each offers its part of the machine."),
    ] = 1,
    resource: Annotated[
        list[str] | None,
        typer.Option(
            envvar="PUNCTUAL_WORKER_RESOURCES", help="Whatever else jobs may ask for: gpu=1. May be repeated."
        ),
    ] = None,
    network: Annotated[
        bool,
        typer.Option(
            "--network", envvar="PUNCTUAL_WORKER_NETWORK", help="Give a network to jobs that ask for one and may."
        ),
    ] = False,
    network_allow: Annotated[
        list[str] | None,
        typer.Option(envvar="PUNCTUAL_WORKER_NETWORK_ALLOW", help="A range that is not blocked. May be repeated."),
    ] = None,
    network_dns: Annotated[
        list[str] | None,
        typer.Option(
            envvar="PUNCTUAL_WORKER_NETWORK_DNS", help="Whom they ask for names. (default: whom this machine asks)"
        ),
    ] = None,
    state_dir: Annotated[
        Path,
        typer.Option(envvar="PUNCTUAL_WORKER_STATE_DIR", help="Its programs and its lock; one for each worker."),
    ] = CHECKOUT / "var" / "worker",
    cache_mb: Annotated[
        int, typer.Option(envvar="PUNCTUAL_WORKER_CACHE_MB", min=1, help="For the programs that it has fetched.")
    ] = 2048,
    drain_seconds: Annotated[
        float,
        typer.Option(
            envvar="PUNCTUAL_WORKER_DRAIN_SECONDS", min=0, help="How long runs may finish when it is stopped."
        ),
    ] = 60.0,
    allow_weak_sandbox: Annotated[
        bool,
        typer.Option(
            "--allow-weak-sandbox",
            envvar="PUNCTUAL_WORKER_ALLOW_WEAK_SANDBOX",
            help="Take work also if the sandbox fails its own test, for jobs that do not ask for untrusted-ok.",
        ),
    ] = False,
    ca_file: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Certificates to trust beside the system's, in PEM form."),
    ] = None,
) -> None:
    """Run jobs of a Punctual elsewhere on this machine, until Ctrl-C or SIGTERM.

    It needs that address and a token, and no database, Redis or storage credentials. On the server,
    `manage.py create_worker_token` or the admin makes the token.
    """
    _check_url(url)
    token = _checked_token(token)
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
        resources=_resources(resource or []),
        on_host=workers_on_host,
        allow_weak_sandbox=allow_weak_sandbox,
        network=_network(network_allow or [], network_dns or []) if network else None,
    )
    problem = RemoteWorker(settings, url=url, token=token, ca_file=str(ca_file) if ca_file else None).run()
    if problem:
        raise PunctualError(problem)


def _network(allowed: list[str], resolvers: list[str]) -> NetworkRules:
    try:
        return NetworkRules.parse(_parts(allowed), _parts(resolvers))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--network-allow or --network-dns") from error


def _parts(words: list[str]) -> list[str]:
    """A variable of the environment holds them all, separated by commas."""
    return [part.strip() for word in words for part in word.split(",") if part.strip()]


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise typer.BadParameter("write an address such as https://punctual.example", param_hint="--url")
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        logger.warning("%s is not https: whoever sees the network sees the token, and what jobs are given", url)


def _checked_token(token: str) -> str:
    """Not repeated in the message: it would end in a log."""
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise typer.BadParameter("that is no token: it has odd characters in it", param_hint="--token")
    return token


def _resources(words: list[str]) -> dict[str, int]:
    try:
        return parse_amounts(",".join(words))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--resource") from None


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # It would write every address down, and those of the object store are rights.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        app(prog_name="./punctual worker")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except (PunctualError, SandboxUnavailable, OSError) as error:
        sys.exit(f"punctual worker: {error}")


if __name__ == "__main__":
    main()
