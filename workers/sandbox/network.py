"""A way out of the machine for a run that may have one: slirp4netns, and what it must not lead to.

Invariant: slirp4netns opens connections as a program of this machine would, so whatever a run must not reach has to
be refused before it: `network_rules` says what that is, `netlink.close_ranges` refuses it inside the run's namespace.
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
from workers.sandbox.netlink import local_ranges
from workers.sandbox.network_rules import INNER_RANGE, Blocks, NetworkRules, blocked_ranges

OLDEST_VERSION = (1, 1, 0)  # older ones cannot be told a namespace by descriptor, or know no seccomp
READY_SECONDS = 10.0
EXPLAINING_SECONDS = 1.0
OPEN_FILES = 1024  # one for each connection; each may buffer a quarter of a megabyte
INTERFACE = "tap0"
TUN = Path("/dev/net/tun")
# Best first; its own sandbox needs a uid 0 in the user namespace that owns the network.
HARDENINGS = (("--enable-sandbox", "--enable-seccomp"), ("--enable-seccomp",), ())
# Lowered by the shell, so that neither the worker nor a root worker's missing privileges matter.
START = f'ulimit -n {OPEN_FILES}; ulimit -c 0; exec "$0" "$@"'


@dataclass(frozen=True)
class NetworkPlan:
    """How this machine gives runs a network; made once, at the worker's start."""

    slirp: Path
    version: str
    rules: NetworkRules
    hardening: tuple[str, ...]

    def blocks_now(self) -> Blocks:
        """This machine's own addresses change, so they are looked up for each run."""
        return blocked_ranges(map(IPv4Network, local_ranges()), self.rules)

    @property
    def described(self) -> str:
        return f"slirp4netns {self.version} {' '.join(self.hardening)}".strip()

    def receipt(self, blocks: Blocks) -> Mapping[str, object]:
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
    version = _version_of(found)
    if version is None or tuple(map(int, version.split("."))) < OLDEST_VERSION:
        oldest = ".".join(map(str, OLDEST_VERSION))
        raise SandboxUnavailable(f"{found} is no slirp4netns {oldest} or newer that runs here: install one.")
    if not os.access(TUN, os.F_OK):
        raise SandboxUnavailable(
            f"{TUN} is missing: load the kernel module tun, and give a container that the worker is in the device."
        )
    return Path(found), version


def _version_of(program: str) -> str | None:
    try:
        said = subprocess.run([program, "--version"], env={}, capture_output=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.match(rb"slirp4netns version (\d+\.\d+\.\d+)", said)
    return found.group(1).decode() if found else None


class Uplink:
    """One slirp4netns for one run's network namespace. It leaves with the worker, however that ends."""

    def __init__(self, pid: int, end: ExitStack) -> None:
        self.pid = pid
        self._end = end

    @classmethod
    def connect(
        cls,
        plan: NetworkPlan,
        namespaces: tuple[int, int],
        ids: tuple[int | None, int | None],
        join: Callable[[int], None] | None = None,
    ) -> "Uplink":
        """Attach to the namespaces (user, net) that these descriptors name; raise SandboxError if that fails.

        `ids` is the uid and gid of whoever owns that user namespace, where that is not the worker itself; `join` is
        called with its pid and puts it into a cgroup.
        """
        with ExitStack() as undo:
            with ExitStack() as lent:
                ready, ready_far = _pipe(undo, lent)
                # what nobody reads is lost, instead of stopping it: a run can make it complain
                words, words_far = _pipe(undo, lent, os.O_NONBLOCK)
                leave_far, _ = _pipe(lent, undo)
                told = [f"--ready-fd={ready_far}", f"--exit-fd={leave_far}", *_targets(namespaces)]
                passed = (*namespaces, ready_far, leave_far)
                process = _start([str(plan.slirp), *_arguments(plan), *told], passed, words_far, ids)
            over = _hold(process, undo)
            if join is not None:
                join(process.pid)
            if not _says_ready(ready):
                said = _words(words) if pidfd.is_over(over, EXPLAINING_SECONDS) else "it did not answer in time"
                raise SandboxError(f"slirp4netns could not connect the run to a network: {said}")
            return cls(process.pid, undo.pop_all())

    def close(self) -> None:
        """At once: nothing is left that could use it."""
        self._end.close()


def _arguments(plan: NetworkPlan) -> list[str]:
    own_resolvers = ["--disable-dns"] if plan.rules.resolvers else []
    return [
        *("--configure", f"--cidr={INNER_RANGE}", "--mtu=65520", "--disable-host-loopback"),
        *plan.hardening,
        *own_resolvers,
    ]


def _targets(namespaces: tuple[int, int]) -> list[str]:
    user, net = (f"/proc/self/fd/{descriptor}" for descriptor in namespaces)
    return ["--netns-type=path", f"--userns-path={user}", net, INTERFACE]


def _start(
    command: Sequence[str], passed: tuple[int, ...], words: int, ids: tuple[int | None, int | None]
) -> subprocess.Popen[bytes]:
    uid, gid = ids
    try:
        return subprocess.Popen(
            ["/bin/sh", "-c", START, *command],
            pass_fds=passed,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            env={},
            cwd="/",
            start_new_session=True,
            user=uid,
            group=gid,
            extra_groups=None if uid is None else [],
        )
    except OSError as error:
        raise SandboxError(f"slirp4netns could not be started: {error}") from error


def _pipe(reader: ExitStack, writer: ExitStack, flags: int = 0) -> tuple[int, int]:
    """Each end is closed with the stack that it belongs to."""
    ends = os.pipe2(os.O_CLOEXEC | flags)
    for end, owner in zip(ends, (reader, writer), strict=True):
        owner.callback(os.close, end)
    return ends


def _hold(process: subprocess.Popen[bytes], undo: ExitStack) -> int:
    """A descriptor of the process, which is ended with the stack."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        process.kill()
        process.wait()
        raise
    undo.callback(os.close, descriptor)
    undo.callback(_end, process, descriptor)
    return descriptor


def _end(process: subprocess.Popen[bytes], descriptor: int) -> None:
    if pidfd.kill_and_wait(descriptor):  # wait() with a limit would sleep between looks
        process.wait()


def _words(descriptor: int) -> str:
    with contextlib.suppress(BlockingIOError):
        lines = os.read(descriptor, 4096).decode(errors="replace").split("\n")
        return "; ".join(line for line in lines if line and "experimental" not in line) or "it said nothing"
    return "it said nothing"


def _says_ready(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(READY_SECONDS * 1000)) and os.read(descriptor, 1) == b"1"
