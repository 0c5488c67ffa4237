"""Client of the running supervisord: list, start and stop processes.

Every call has a timeout, so that a hanging supervisor blocks no command.
"""

from __future__ import annotations

import base64
import http.client
import time
import xmlrpc.client  # parses only responses of our own password-protected supervisor
from collections.abc import Iterable
from dataclasses import dataclass

from scheduler_project.localstack.config import StackConfig
from scheduler_project.localstack.errors import StackError
from scheduler_project.localstack.layout import Layout
from scheduler_project.localstack.ports import LOOPBACK
from scheduler_project.localstack.stack import SUPERVISOR
from scheduler_project.localstack.supervisor.configuration import SUPERVISOR_USER

CALL_TIMEOUT_SECONDS = 10.0
POLL_SECONDS = 0.1
MAX_STARTS = 3
RUNNING_TIMEOUT_SECONDS = 20.0
ENDED_STATES = ("STOPPED", "EXITED", "FATAL", "BACKOFF")


class SupervisorUnreachable(StackError):
    """The process supervisor does not answer."""


@dataclass(frozen=True)
class ProcessState:
    name: str
    state: str
    pid: int
    uptime_seconds: int

    @property
    def is_running(self) -> bool:
        return self.state == "RUNNING"


class SupervisorClient:
    def __init__(self, layout: Layout, config: StackConfig) -> None:
        self._layout = layout
        self._log = layout.log(SUPERVISOR)
        self._port = config.ports.supervisor
        self._password = config.secrets.supervisor_password
        self._pids: dict[str, set[int]] = {}

    def states(self) -> tuple[ProcessState, ...]:
        answer = self._call("supervisor.getAllProcessInfo")
        if not isinstance(answer, list):
            raise SupervisorUnreachable("The process supervisor sent an invalid response.")
        # In the order of the configuration: engines first.
        return tuple(
            ProcessState(
                name=str(entry["name"]),
                state=str(entry["statename"]),
                pid=int(entry["pid"]),
                uptime_seconds=int(entry["now"]) - int(entry["start"]) if entry["pid"] else 0,
            )
            for entry in answer
        )

    def answers(self) -> bool:
        try:
            self.states()
        except SupervisorUnreachable:
            return False
        return True

    def start(self, names: Iterable[str]) -> None:
        for name in names:
            self._call("supervisor.startProcess", name, False)

    def stop(self, names: Iterable[str], *, seconds: float) -> None:
        """Stop them in parallel, and wait at most `seconds`."""
        names = set(names)
        for state in self.states():
            if state.name in names and state.state not in ("STOPPED", "EXITED", "FATAL", "STOPPING"):
                self._call("supervisor.stopProcess", state.name, False)
        deadline = time.monotonic() + seconds
        while any(state.name in names and state.state not in ENDED_STATES for state in self.states()):
            if time.monotonic() > deadline:
                return
            time.sleep(POLL_SECONDS)

    def shutdown(self) -> None:
        self._call("supervisor.shutdown")

    def require_alive(self, names: Iterable[str]) -> None:
        """Raise if a process has failed for good or keeps restarting."""
        names = set(names)
        for state in self.states():
            if state.name not in names:
                continue
            starts = self._pids.setdefault(state.name, set())
            if state.pid:
                starts.add(state.pid)
            if state.state == "FATAL" or len(starts) >= MAX_STARTS:
                raise StackError(
                    f"{state.name} keeps exiting right after its start; the end of its log is above.",
                    log=self._layout.log(state.name),
                )

    def wait_until_running(self, names: Iterable[str], *, seconds: float = RUNNING_TIMEOUT_SECONDS) -> None:
        names = set(names)
        deadline = time.monotonic() + seconds
        while waiting := [state.name for state in self.states() if state.name in names and not state.is_running]:
            self.require_alive(names)
            if time.monotonic() > deadline:
                raise StackError(
                    f"{waiting[0]} does not stay up; the end of its log is above.", log=self._layout.log(waiting[0])
                )
            time.sleep(POLL_SECONDS)

    def _call(self, method: str, *arguments: str | bool) -> object:
        key = base64.b64encode(f"{SUPERVISOR_USER}:{self._password}".encode()).decode()
        connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=CALL_TIMEOUT_SECONDS)
        try:
            connection.request(
                "POST",
                "/RPC2",
                body=xmlrpc.client.dumps(arguments, method),
                headers={"Authorization": f"Basic {key}", "Content-Type": "text/xml"},
            )
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise SupervisorUnreachable(
                    f"The process supervisor refused the password ({response.status}).", log=self._log
                )
            (answer,), _ = xmlrpc.client.loads(response.read())
        except xmlrpc.client.Fault as fault:
            raise StackError(f"The process supervisor refused the call: {fault.faultString}.") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise SupervisorUnreachable(f"The process supervisor does not answer ({error}).", log=self._log) from None
        finally:
            connection.close()
        return answer
