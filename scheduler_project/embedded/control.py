"""Talks to a running supervisord: what runs, start this, stop that.

Every call is bounded: a supervisor that hangs must not hang whoever asks it.
"""

from __future__ import annotations

import base64
import http.client
import time
import xmlrpc.client  # only ever reads the answers of our own supervisor, which asked us for a password
from collections.abc import Iterable
from dataclasses import dataclass

from scheduler_project.embedded.config import StackConfig
from scheduler_project.embedded.layout import Layout
from scheduler_project.embedded.ports import LOOPBACK
from scheduler_project.embedded.problems import StackProblem
from scheduler_project.embedded.stack import SUPERVISOR
from scheduler_project.embedded.supervision import USER

CALL_SECONDS = 10.0
POLL_SECONDS = 0.1
STARTS_UNTIL_HOPELESS = 3
RUNNING_SECONDS = 20.0
ENDED_STATES = ("STOPPED", "EXITED", "FATAL", "BACKOFF")


class SupervisorUnreachable(StackProblem):
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


class Supervisor:
    def __init__(self, layout: Layout, config: StackConfig) -> None:
        self._layout = layout
        self._log = layout.log(SUPERVISOR)
        self._port = config.ports.supervisor
        self._password = config.secrets.supervisor_password
        self._pids: dict[str, set[int]] = {}

    def states(self) -> tuple[ProcessState, ...]:
        answer = self._call("supervisor.getAllProcessInfo")
        if not isinstance(answer, list):
            raise SupervisorUnreachable("The process supervisor gave an answer that makes no sense.")
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
        """Stops them at the same time, and waits until they have."""
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
        """Raises once one of them is given up, or has been started again and again."""
        names = set(names)
        for state in self.states():
            if state.name not in names:
                continue
            starts = self._pids.setdefault(state.name, set())
            if state.pid:
                starts.add(state.pid)
            if state.state == "FATAL" or len(starts) >= STARTS_UNTIL_HOPELESS:
                raise StackProblem(
                    f"{state.name} keeps ending as soon as it is started; its last words are above.",
                    log=self._layout.log(state.name),
                )

    def wait_until_running(self, names: Iterable[str], *, seconds: float = RUNNING_SECONDS) -> None:
        names = set(names)
        deadline = time.monotonic() + seconds
        while waiting := [state.name for state in self.states() if state.name in names and not state.is_running]:
            self.require_alive(names)
            if time.monotonic() > deadline:
                raise StackProblem(
                    f"{waiting[0]} does not stay up; its last words are above.", log=self._layout.log(waiting[0])
                )
            time.sleep(POLL_SECONDS)

    def _call(self, method: str, *arguments: str | bool) -> object:
        key = base64.b64encode(f"{USER}:{self._password}".encode()).decode()
        connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=CALL_SECONDS)
        try:
            connection.request(
                "POST",
                "/RPC2",
                body=xmlrpc.client.dumps(arguments, method),
                headers={"Authorization": f"Basic {key}", "Content-Type": "text/xml"},
            )
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise SupervisorUnreachable(f"The process supervisor refused us ({response.status}).", log=self._log)
            (answer,), _ = xmlrpc.client.loads(response.read())
        except xmlrpc.client.Fault as fault:
            raise StackProblem(f"The process supervisor refused: {fault.faultString}.") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise SupervisorUnreachable(f"The process supervisor does not answer ({error}).", log=self._log) from None
        finally:
            connection.close()
        return answer
