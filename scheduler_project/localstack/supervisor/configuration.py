"""Configuration of supervisord, which restarts every process of the stack when it dies.

The engines start with the supervisor; the applications start once the database is migrated.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from scheduler_project.localstack.layout import Layout
from scheduler_project.localstack.ports import LOOPBACK
from scheduler_project.localstack.private_files import write_private
from scheduler_project.localstack.processes.spec import LAUNCHER_PATH, ProcessSpec, build_engine_environment
from scheduler_project.localstack.stack import SUPERVISOR, Stack

SUPERVISOR_USER = "punctual"
LOG_BYTES = "10MB"
LOG_BACKUPS = 3
# A process that exits sooner counts as failed to start.
START_SECONDS = 2
# Pauses grow by a second with each failed start, so supervisord retries for days.
START_RETRIES = 500
SUPERVISORD_PATH = Path(__file__).with_name("supervisord.py")


def start_supervisor(stack: Stack, *, stays_behind: bool) -> subprocess.Popen[bytes]:
    """Start supervisord, which outlives this process only if it `stays_behind`."""
    layout = stack.layout
    configuration = write_configuration(stack)
    supervisor = ProcessSpec(
        name=SUPERVISOR,
        argv=(sys.executable, "-P", str(SUPERVISORD_PATH), "-c", configuration.name),
        environment=build_engine_environment(layout.run),
        directory=layout.run,
        ends_with_parent=not stays_behind,
    )
    command = supervisor.write(layout.run, record=layout.record(SUPERVISOR))
    with layout.log(SUPERVISOR).open("ab") as log:
        # A separate session, because `up` handles Ctrl-C and stops processes in order.
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def write_configuration(stack: Stack) -> Path:
    layout = stack.layout
    path = layout.run / "supervisord.conf"
    engines = [engine.process() for engine in stack.engines]
    sections = [
        _format_section(
            "supervisord",
            nodaemon="true",
            silent="true",
            umask="077",
            logfile=f"../{layout.logs.name}/{SUPERVISOR}.log",
            logfile_maxbytes=LOG_BYTES,
            logfile_backups=LOG_BACKUPS,
            pidfile="supervisord.own.pid",
            childlogdir=".",
            minfds=256,
            minprocs=1,
        ),
        _format_section(
            "inet_http_server",
            port=f"{LOOPBACK}:{stack.config.ports.supervisor}",
            username=SUPERVISOR_USER,
            password=stack.config.secrets.supervisor_password,
        ),
        "[rpcinterface:supervisor]\nsupervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface\n",
        *_build_program_sections(layout, engines, first_priority=100, autostart=True),
        *_build_program_sections(layout, stack.applications, first_priority=200, autostart=False),
    ]
    write_private(path, "\n".join(sections))
    return path


def _build_program_sections(
    layout: Layout, processes: Iterable[ProcessSpec], *, first_priority: int, autostart: bool
) -> Iterable[str]:
    for priority, process in enumerate(processes, start=first_priority):
        command = _link_executables(layout, process)
        yield _format_section(
            f"program:{process.name}",
            command=shlex.join(command),
            priority=priority,
            autostart=str(autostart).lower(),
            autorestart="true",
            startsecs=START_SECONDS,
            startretries=START_RETRIES,
            stopsignal=process.stop_signal.name.removeprefix("SIG"),
            stopwaitsecs=process.stop_seconds,
            killasgroup="true",
            redirect_stderr="true",
            stdout_logfile=f"../{layout.logs.name}/{process.name}.log",
            stdout_logfile_maxbytes=LOG_BYTES,
            stdout_logfile_backups=LOG_BACKUPS,
        )


def _link_executables(layout: Layout, process: ProcessSpec) -> tuple[str, ...]:
    """Return a command without absolute paths, which supervisord's format cannot always quote."""
    process.write(layout.run, record=layout.record(process.name))
    for name, target in (("python", os.path.realpath(sys.executable)), (LAUNCHER_PATH.name, str(LAUNCHER_PATH))):
        link = layout.run / name
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    return ("./python", "-I", "-S", f"./{LAUNCHER_PATH.name}", f"./{process.name}.json")


def _format_section(title: str, **settings: str | int) -> str:
    return f"[{title}]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items())


def list_stopping_order(layout: Layout) -> dict[Path, tuple[signal.Signals, float]]:
    """Return the records of all processes with their stop signals, dependents before their dependencies."""
    signals = {"postgres": signal.SIGINT}
    names = (SUPERVISOR, "flower", "worker", "beat", "web", "seaweedfs", "valkey", "postgres")
    return {layout.record(name): (signals.get(name, signal.SIGTERM), 20.0) for name in names}
