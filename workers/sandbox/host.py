"""What this host offers for isolation, proved by running a program in it.

Invariant: a `Host` exists only where a sandbox really stands; everywhere else there is one sentence that
says why not and what to do.
"""

import dataclasses
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workers.sandbox import seccomp
from workers.sandbox.bubblewrap import bwrap_version, find_bwrap
from workers.sandbox.cgroups import CgroupParents, Mode, find_parents
from workers.sandbox.errors import SandboxError, SandboxUnavailable
from workers.sandbox.network import HARDENINGS, NetworkPlan, find_slirp
from workers.sandbox.network_rules import Blocks, NetworkRules
from workers.sandbox.values import EndReason, Limits, Program, Stream

logger = logging.getLogger(__name__)

NOBODY = 65534
PROOF_LIMITS = Limits(wall_seconds=20, memory_bytes=2**27, disk_bytes=2**20, cpus=1)


@dataclass(frozen=True)
class Host:
    bwrap: Path
    version: str
    drop_uid: int | None  # whom a root worker becomes before it starts bubblewrap
    drop_gid: int | None
    cgroups: CgroupParents = field(default_factory=CgroupParents)
    slots_share: bool = True  # slots have namespaces and a root that their runs share; else each run brings its own
    network: NetworkPlan | None = None  # how a run gets one; None: no run does

    @property
    def cgroup_mode(self) -> Mode:
        return self.cgroups.mode

    @property
    def memory_is_metered(self) -> bool:
        """By the kernel, whoever holds it; else only what processes have mapped is seen."""
        return self.cgroup_mode != "none"

    @property
    def resolver_file(self) -> str | None:
        return None if self.network is None else self.network.rules.resolver_file

    def receipt(
        self, namespaces: tuple[str, ...], limits: Limits, blocks: Blocks | None = None
    ) -> Mapping[str, object]:
        """What a run was given, to be stored with its attempt."""
        network = self.network.receipt(blocks) if self.network and blocks else None
        return {
            "bubblewrap": self.version,
            "namespaces": list(namespaces),
            "uid": os.getuid() if self.drop_uid is None else self.drop_uid,
            "seccomp": seccomp.digest(memory_is_metered=self.memory_is_metered),
            "cgroup": self.cgroup_mode,
            "limits": dataclasses.asdict(limits),
            "network": network is not None,
            **({} if network is None else {"network_details": network}),
        }


def detect_host() -> Host:
    """Look at this host and run `true` in a sandbox; raise SandboxUnavailable if that does not work."""
    bwrap = find_bwrap()
    drop = NOBODY if os.geteuid() == 0 else None
    version = ".".join(map(str, bwrap_version(bwrap) or ()))
    host = Host(bwrap, version, drop, drop, find_parents())
    try:
        _prove_isolation(host)
    except SandboxUnavailable as error:
        # namespaces may be allowed to bubblewrap alone, or in one layer only
        logger.info("Slots share nothing here, and every run takes longer to start: %s", error)
        host = dataclasses.replace(host, slots_share=False)
        _prove_isolation(host)
    return host


def with_network(host: Host, rules: NetworkRules) -> Host:
    """The same host, proved to be able to give a run a network; raise SandboxUnavailable if it is not."""
    if not host.slots_share:
        raise SandboxUnavailable("This host allows namespaces to bubblewrap alone, and a network needs one more.")
    slirp, version = find_slirp()
    failure = ""
    for hardening in HARDENINGS:
        able = dataclasses.replace(host, network=NetworkPlan(slirp, version, rules, hardening))
        try:
            _prove(able)
        except SandboxError as error:
            failure = failure or str(error)
            continue
        return able
    raise SandboxUnavailable(failure)


def _prove_isolation(host: Host) -> None:
    try:
        _prove(host)
    except SandboxError as error:
        raise SandboxUnavailable(explain_failure(str(error))) from error


def _prove(host: Host) -> None:
    """Run `true` in it, with a network if it has one to give."""
    from workers.sandbox.sandbox import Sandbox  # noqa: PLC0415  (a sandbox is built for a host)

    said: list[bytes] = []

    def listen(stream: Stream, data: bytes) -> None:
        said.append(data)

    program = Program(("true",), {"PATH": "/usr/bin:/bin"}, network=host.network is not None)
    sandbox = Sandbox(host)
    try:
        with sandbox.start(program, PROOF_LIMITS) as run:
            outcome = run.stream(listen)
    finally:
        sandbox.close()
    if (outcome.reason, outcome.exit_code) != (EndReason.EXIT, 0):
        words = b"".join(said).decode(errors="replace").strip() or f"it ended with {outcome.reason}"
        raise SandboxUnavailable(
            f"The sandbox stands but cannot run even `true` in it ({words}): check that /usr is readable for "
            "everyone and holds this system's programs."
        )


def explain_failure(error: str, kernel: Path = Path("/proc/sys")) -> str:
    """Turn bubblewrap's words and this kernel's settings into one sentence with what to do."""
    words = error.lower()
    if "proc on /newroot/proc" in words or "max_user_namespaces" in words or "read-only file system" in words:
        advice = (
            "this container masks /proc: start it with --security-opt systempaths=unconfined (Docker) "
            "or --security-opt unmask=ALL (Podman)"
        )
    elif "may not become uid" in words:
        advice = "give the worker CAP_SETUID and CAP_SETGID, or run it as an ordinary user"
    elif _setting(kernel / "user/max_user_namespaces") == "0":
        advice = "user namespaces are off: set the sysctl user.max_user_namespaces to 10000 or more"
    elif _setting(kernel / "kernel/unprivileged_userns_clone") == "0":
        advice = "user namespaces are off for ordinary users: set the sysctl kernel.unprivileged_userns_clone to 1"
    elif _setting(kernel / "kernel/apparmor_restrict_unprivileged_userns") == "1":
        advice = (
            "AppArmor forbids user namespaces here, as on Ubuntu since 23.10: install a profile that allows "
            "`userns` to bwrap, or set the sysctl kernel.apparmor_restrict_unprivileged_userns to 0"
        )
    elif "namespace" in words or "operation not permitted" in words or "permission denied" in words:
        advice = (
            "something forbids user namespaces, most likely this container's seccomp profile: start the "
            "container with one that allows them, or run the worker outside"
        )
    else:
        advice = "run the worker on a host where bubblewrap works"
    return f"This host cannot isolate programs: {advice} ({error.rstrip('.')})."


def _setting(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
