"""Detection of this host's isolation, proved by running a program in a sandbox.

Invariant: a `Host` exists only if a sandbox works; otherwise SandboxUnavailable gives the reason and what to do.
"""

import dataclasses
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workers.sandbox.bubblewrap.command_line import bwrap_version, explain_version_risk, find_bwrap
from workers.sandbox.cgroups.lifecycle import CgroupMode, CgroupParents, find_parents
from workers.sandbox.errors import SandboxError, SandboxUnavailable
from workers.sandbox.network.rules import Blocklist, NetworkRules
from workers.sandbox.network.uplink import HARDENING, SlirpNetwork, find_slirp
from workers.sandbox.seccomp import compiler
from workers.sandbox.slots.users import SlotUsers, choose_slot_users
from workers.sandbox.values import ExitReason, Limits, Program

logger = logging.getLogger(__name__)

PROBE_LIMITS = Limits(wall_seconds=20, memory_bytes=2**27, disk_bytes=2**20, cpus=1)


@dataclass(frozen=True)
class Host:
    bwrap: Path
    version: str
    users: SlotUsers | None  # users of the slots of a root worker; None: slots run as the worker's user
    cgroups: CgroupParents = field(default_factory=CgroupParents)
    slots_share: bool = True  # runs share their slot's namespaces and root; else each run has its own
    network: SlirpNetwork | None = None  # None: no run gets a network

    @property
    def cgroup_mode(self) -> CgroupMode:
        return self.cgroups.mode

    @property
    def memory_is_metered(self) -> bool:
        """Return whether the kernel counts all memory of a run; otherwise only mapped memory is seen."""
        return self.cgroup_mode != "none"

    @property
    def warning(self) -> str | None:
        """Return a warning about a known problem of this bubblewrap."""
        return explain_version_risk(self.version)

    @property
    def resolver_file(self) -> str | None:
        return None if self.network is None else self.network.rules.resolver_file

    def receipt(
        self, namespaces: tuple[str, ...], limits: Limits, uid: int, blocklist: Blocklist | None = None
    ) -> Mapping[str, object]:
        """Return a description of a run's sandbox, to be stored with its attempt."""
        network = self.network.receipt(blocklist) if self.network and blocklist else None
        return {
            "bubblewrap": self.version,
            "namespaces": list(namespaces),
            "uid": uid,
            "seccomp": compiler.hash_host_filter(memory_is_metered=self.memory_is_metered),
            "cgroup": self.cgroup_mode,
            "limits": dataclasses.asdict(limits),
            "network": network is not None,
            **({} if network is None else {"network_details": network}),
        }


def detect_host() -> Host:
    """Inspect this host and run `true` in a sandbox; raise SandboxUnavailable if that fails."""
    bwrap = find_bwrap()
    users = choose_slot_users() if os.geteuid() == 0 else None
    version = ".".join(map(str, bwrap_version(bwrap) or ()))
    host = Host(bwrap, version, users, find_parents())
    try:
        _verify_isolation(host)
    except SandboxUnavailable as error:
        # namespaces may be allowed for bubblewrap only, or not nested
        logger.info("Slots cannot share namespaces with runs, so every run takes longer to start: %s", error)
        host = dataclasses.replace(host, slots_share=False)
        _verify_isolation(host)
    return host


def enable_network(host: Host, rules: NetworkRules) -> Host:
    """Return the host with a tested network for runs; raise SandboxUnavailable if that fails."""
    if not host.slots_share:
        raise SandboxUnavailable("This host allows namespaces for bubblewrap only, and a network needs one more.")
    slirp, version = find_slirp()
    networked = dataclasses.replace(host, network=SlirpNetwork(slirp, version, rules))
    try:
        _run_true(networked)
    except SandboxError as error:
        raise SandboxUnavailable(f"{slirp} {' '.join(HARDENING)} does not work here: {error}") from error
    return networked


def _verify_isolation(host: Host) -> None:
    try:
        _run_true(host)
    except SandboxError as error:
        raise SandboxUnavailable(explain_failure(str(error))) from error


def _run_true(host: Host) -> None:
    """Run `true` in a sandbox, with a network if the host has one."""
    from workers.sandbox.sandbox import Sandbox  # noqa: PLC0415  (a sandbox is built for a host)

    output: list[bytes] = []
    program = Program(("true",), {"PATH": "/usr/bin:/bin"}, network=host.network is not None)
    sandbox = Sandbox(host)
    try:
        with sandbox.start(program, PROBE_LIMITS) as run:
            outcome = run.stream(lambda _, data: output.append(data))
    finally:
        sandbox.close()
    if (outcome.reason, outcome.exit_code) != (ExitReason.EXIT, 0):
        problem = b"".join(output).decode(errors="replace").strip() or f"it ended with {outcome.reason}"
        raise SandboxUnavailable(
            f"The sandbox was built but cannot run even `true` ({problem}): check that /usr is readable for everyone "
            "and contains this system's programs."
        )


def explain_failure(error: str, kernel: Path = Path("/proc/sys")) -> str:
    """Turn bubblewrap's error and this kernel's settings into one sentence with what to do."""
    lowered = error.lower()
    if "proc on /newroot/proc" in lowered or "max_user_namespaces" in lowered or "read-only file system" in lowered:
        advice = (
            "this container masks /proc: start it with --security-opt systempaths=unconfined (Docker) "
            "or --security-opt unmask=ALL (Podman)"
        )
    elif "may not become uid" in lowered:
        advice = "give the worker CAP_SETUID and CAP_SETGID, or run it as an ordinary user"
    elif _read_sysctl(kernel / "user/max_user_namespaces") == "0":
        advice = "user namespaces are off: set the sysctl user.max_user_namespaces to 10000 or more"
    elif _read_sysctl(kernel / "kernel/unprivileged_userns_clone") == "0":
        advice = "user namespaces are off for ordinary users: set the sysctl kernel.unprivileged_userns_clone to 1"
    elif _read_sysctl(kernel / "kernel/apparmor_restrict_unprivileged_userns") == "1":
        advice = (
            "AppArmor forbids user namespaces here, as on Ubuntu since 23.10: install a profile that allows "
            "`userns` to bwrap, or set the sysctl kernel.apparmor_restrict_unprivileged_userns to 0"
        )
    elif "namespace" in lowered or "operation not permitted" in lowered or "permission denied" in lowered:
        advice = (
            "something forbids user namespaces, most likely this container's seccomp profile: start the "
            "container with one that allows them, or run the worker outside"
        )
    else:
        advice = "run the worker on a host where bubblewrap works"
    return f"This host cannot isolate programs: {advice} ({error.rstrip('.')})."


def _read_sysctl(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
