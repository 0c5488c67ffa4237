"""supervisord's configuration: every process of the stack, restarted when it dies.

The engines start with the supervisor; the applications are started once the database is ready for them.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from scheduler_project.embedded.layout import Layout
from scheduler_project.embedded.ports import LOOPBACK
from scheduler_project.embedded.private_files import write_private
from scheduler_project.embedded.process import LAUNCHER, ProcessSpec, engine_environment
from scheduler_project.embedded.stack import SUPERVISOR, Stack

USER = "punctual"
LOG_BYTES = "10MB"
LOG_BACKUPS = 3
# A process that ended this soon after its start never really ran.
START_SECONDS = 2
# Each failed start waits a second longer than the one before, so it tries for days before it gives up.
START_RETRIES = 500
SUPERVISORD = Path(__file__).with_name("supervisord.py")


def start_supervisor(stack: Stack, *, stays_behind: bool) -> subprocess.Popen[bytes]:
    """Starts supervisord, which outlives this process only if it `stays_behind`."""
    layout = stack.layout
    configuration = write_configuration(stack)
    supervisor = ProcessSpec(
        name=SUPERVISOR,
        argv=(sys.executable, "-P", str(SUPERVISORD), "-c", configuration.name),
        environment=engine_environment(layout.run),
        directory=layout.run,
        ends_with_parent=not stays_behind,
    )
    command = supervisor.write(layout.run, record=layout.record(SUPERVISOR))
    with layout.log(SUPERVISOR).open("ab") as log:
        # A session of its own: Ctrl-C in the terminal is for us to handle, in order.
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def write_configuration(stack: Stack) -> Path:
    layout = stack.layout
    path = layout.run / "supervisord.conf"
    engines = [engine.process() for engine in stack.engines]
    sections = [
        _section(
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
        _section(
            "inet_http_server",
            port=f"{LOOPBACK}:{stack.config.ports.supervisor}",
            username=USER,
            password=stack.config.secrets.supervisor_password,
        ),
        "[rpcinterface:supervisor]\nsupervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface\n",
        *_programs(layout, engines, first_priority=100, autostart=True),
        *_programs(layout, stack.applications, first_priority=200, autostart=False),
    ]
    write_private(path, "\n".join(sections))
    return path


def _programs(
    layout: Layout, processes: Iterable[ProcessSpec], *, first_priority: int, autostart: bool
) -> Iterable[str]:
    for priority, process in enumerate(processes, start=first_priority):
        command = _link_command(layout, process)
        yield _section(
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


def _link_command(layout: Layout, process: ProcessSpec) -> tuple[str, ...]:
    """A command without any path of this machine: supervisord's format cannot quote all of them."""
    process.write(layout.run, record=layout.record(process.name))
    for name, target in (("python", os.path.realpath(sys.executable)), (LAUNCHER.name, str(LAUNCHER))):
        link = layout.run / name
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    return ("./python", "-I", "-S", f"./{LAUNCHER.name}", f"./{process.name}.json")


def _section(title: str, **settings: str | int) -> str:
    return f"[{title}]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items())


def stopping_order(layout: Layout) -> dict[Path, tuple[signal.Signals, float]]:
    """The records of everything that may have been left running, the users of a thing before the thing."""
    asked = {"postgres": signal.SIGINT}
    names = (SUPERVISOR, "flower", "worker", "beat", "web", "seaweedfs", "valkey", "postgres")
    return {layout.record(name): (asked.get(name, signal.SIGTERM), 20.0) for name in names}
