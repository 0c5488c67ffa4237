"""Network access for a run through slirp4netns.

Invariant: slirp4netns connects like any program of this machine, so forbidden addresses must be blocked before it:
`rules` lists them, `netlink.block_ranges` blocks them inside the run's namespace.
"""

import contextlib
import os
import re
import select
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from workers.sandbox import pidfd
from workers.sandbox.errors import SandboxError, SandboxUnavailable
from workers.sandbox.network.netlink import local_ranges
from workers.sandbox.network.rules import RUN_SUBNET, Blocklist, NetworkRules, build_blocklist

MIN_VERSION = (1, 1, 0)  # older versions do not accept namespaces by descriptor, or lack seccomp
READY_TIMEOUT_SECONDS = 10.0
EXIT_TIMEOUT_SECONDS = 1.0
MAX_OPEN_FILES = 1024  # one per connection, which may buffer 256 kB
INTERFACE = "tap0"
TUN = Path("/dev/net/tun")
# Mandatory, as slirp4netns parses untrusted packets. Its sandbox requires uid 0 in the user namespace that owns the
# network, and a process in it as the target.
HARDENING = ("--enable-sandbox", "--enable-seccomp")
# The shell lowers the limits, as the worker may lack the privilege to do it for another process.
START_SCRIPT = f'ulimit -n {MAX_OPEN_FILES}; ulimit -c 0; exec "$0" "$@"'


@dataclass(frozen=True)
class SlirpNetwork:
    """This machine's configuration of slirp4netns, detected once when the worker starts."""

    slirp: Path
    version: str
    rules: NetworkRules

    def current_blocklist(self) -> Blocklist:
        """Build the blocklist for one run, as this machine's own addresses may change."""
        return build_blocklist(map(IPv4Network, local_ranges()), self.rules)

    @property
    def described(self) -> str:
        return f"slirp4netns {self.version} {' '.join(HARDENING)}"

    def receipt(self, blocks: Blocklist) -> Mapping[str, object]:
        return {
            "slirp4netns": self.version,
            "blocked": [str(network) for network in blocks.ranges],
            "allowed": [str(network) for network in self.rules.allowed],
            "resolvers": [str(address) for address in self.rules.resolvers] or ["this machine's"],
        }


def find_slirp() -> tuple[Path, str]:
    """Return slirp4netns and its version; raise SandboxUnavailable with what to do."""
    chosen = os.environ.get("PUNCTUAL_SLIRP4NETNS")
    found = chosen or shutil.which("slirp4netns", path="/usr/bin:/usr/local/bin:/bin:" + os.environ.get("PATH", ""))
    if found is None:
        raise SandboxUnavailable("slirp4netns was not found: install your distribution's package of that name.")
    version = _read_version(found)
    if version is None or tuple(map(int, version.split("."))) < MIN_VERSION:
        oldest = ".".join(map(str, MIN_VERSION))
        raise SandboxUnavailable(f"{found} is not a slirp4netns {oldest} or newer that runs here: install one.")
    if not os.access(TUN, os.F_OK):
        raise SandboxUnavailable(
            f"{TUN} is missing: load the kernel module tun, and if the worker runs in a container, add the device."
        )
    return Path(found), version


def _read_version(program: str) -> str | None:
    try:
        output = subprocess.run([program, "--version"], env={}, capture_output=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.match(rb"slirp4netns version (\d+\.\d+\.\d+)", output)
    return found.group(1).decode() if found else None


class Uplink:
    """A slirp4netns process for one run's network namespace; it exits with the worker."""

    def __init__(self, pid: int, end: ExitStack) -> None:
        self.pid = pid
        self._end = end

    @classmethod
    def connect(
        cls,
        plan: SlirpNetwork,
        target: int,
        uid: int | None,
        join: Callable[[int], None] | None = None,
    ) -> "Uplink":
        """Attach to the user and network namespaces of this slot; raise SandboxError if that fails.

        `uid` is the uid and gid of the slot, if they are not the worker's; `join` puts the pid of slirp4netns into a
        cgroup.
        """
        with ExitStack() as undo:
            with ExitStack() as lent:
                ready, ready_far = _pipe(undo, lent)
                # non-blocking: unread errors, which a run can provoke, must not block slirp4netns
                errors, errors_far = _pipe(undo, lent, os.O_NONBLOCK)
                exit_far, _ = _pipe(lent, undo)
                target_arguments = [f"--ready-fd={ready_far}", f"--exit-fd={exit_far}", str(target), INTERFACE]
                command = [str(plan.slirp), *_arguments(plan), *target_arguments]
                process = _start(command, (ready_far, exit_far), errors_far, uid)
            process_fd = _own_process(process, undo)
            if join is not None:
                join(process.pid)
            if not _wait_ready(ready):
                exited = pidfd.wait_for_exit(process_fd, EXIT_TIMEOUT_SECONDS)
                problem = _read_error(errors) if exited else "it did not respond in time"
                raise SandboxError(f"slirp4netns could not connect the run to a network: {problem}")
            return cls(process.pid, undo.pop_all())

    def close(self) -> None:
        """Kill slirp4netns; call it when the run has ended."""
        self._end.close()


def _arguments(plan: SlirpNetwork) -> list[str]:
    own_resolvers = ["--disable-dns"] if plan.rules.resolvers else []
    return [
        *("--configure", f"--cidr={RUN_SUBNET}", "--mtu=65520", "--disable-host-loopback"),
        *HARDENING,
        *own_resolvers,
    ]


def _start(command: Sequence[str], passed: tuple[int, ...], errors: int, uid: int | None) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            ["/bin/sh", "-c", START_SCRIPT, *command],
            pass_fds=passed,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            env={},
            cwd="/",
            start_new_session=True,
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
        )
    except OSError as error:
        raise SandboxError(f"slirp4netns could not be started: {error}") from error


def _pipe(reader: ExitStack, writer: ExitStack, flags: int = 0) -> tuple[int, int]:
    """Open a pipe whose ends are closed with these stacks."""
    ends = os.pipe2(os.O_CLOEXEC | flags)
    for end, owner in zip(ends, (reader, writer), strict=True):
        owner.callback(os.close, end)
    return ends


def _own_process(process: subprocess.Popen[bytes], undo: ExitStack) -> int:
    """Return a pidfd of the process, which is killed with the stack."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        process.kill()
        process.wait()
        raise
    undo.callback(os.close, descriptor)
    undo.callback(_kill_process, process, descriptor)
    return descriptor


def _kill_process(process: subprocess.Popen[bytes], descriptor: int) -> None:
    if pidfd.kill_and_wait(descriptor):  # wait() with a timeout would poll with sleeps
        process.wait()


def _read_error(descriptor: int) -> str:
    with contextlib.suppress(BlockingIOError):
        lines = os.read(descriptor, 4096).decode(errors="replace").split("\n")
        return "; ".join(line for line in lines if line and "experimental" not in line) or "no error message"
    return "no error message"


def _wait_ready(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(READY_TIMEOUT_SECONDS * 1000)) and os.read(descriptor, 1) == b"1"
