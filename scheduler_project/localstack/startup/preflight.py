"""Checks before the first process starts; each failure is one sentence with a remedy.

A cause found here is clearer than its consequence in some log later.
"""

from __future__ import annotations

import os
import platform
import pwd
import shutil
import socket
import subprocess
from pathlib import Path

from scheduler_project.localstack.engines.postgres import choose_postgres_user
from scheduler_project.localstack.errors import StackError, describe_os_error
from scheduler_project.localstack.layout import CHECKOUT, FLOWER_PORT_VARIABLE, WEB_PORT_VARIABLE, Layout
from scheduler_project.localstack.ports import LOOPBACK
from scheduler_project.localstack.private_files import make_private_directory
from workers.sandbox.bubblewrap.command_line import find_bwrap
from workers.sandbox.errors import SandboxUnavailable
from workers.sandbox.seccomp import compiler

MIN_FREE_BYTES = 512 * 1024 * 1024
PROBE_TIMEOUT_SECONDS = 10

# The value of each sysctl that forbids user namespaces, and the command that allows them.
_USER_NAMESPACE_SYSCTLS = {
    "/proc/sys/user/max_user_namespaces": ("0", "sysctl -w user.max_user_namespaces=15000"),
    "/proc/sys/kernel/unprivileged_userns_clone": ("0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
}


def prepare_directories(layout: Layout) -> None:
    if platform.system() != "Linux":
        raise StackError(
            f"The local stack runs jobs in Linux sandboxes, and this is {platform.system()}: "
            "start it in a Linux virtual machine."
        )
    if any(character in str(CHECKOUT) for character in '"$`\\'):
        raise StackError(
            f"PostgreSQL cannot be started from {CHECKOUT}, because that path contains a special character of "
            "the shell: move the checkout to a path without double quotes, dollar signs and backslashes."
        )
    try:
        make_private_directory(layout.var)
        _require_ownership(layout.var)
        for directory in (layout.run, layout.logs, layout.data("worker")):
            make_private_directory(directory)
            _require_ownership(directory)
        _require_writable(layout.run)
        free = shutil.disk_usage(layout.var).free
    except OSError as error:
        raise describe_os_error(error, layout.var) from None
    if free < MIN_FREE_BYTES:
        raise StackError(
            f"The disk of {layout.var} has {free >> 20} MiB left, and the stack needs {MIN_FREE_BYTES >> 20}: "
            "free some space, or point PUNCTUAL_VAR to a directory on another disk."
        )


def require_ports(layout: Layout) -> None:
    for product, port, variable in (
        ("The web server", layout.web_port, WEB_PORT_VARIABLE),
        ("Flower", layout.flower_port, FLOWER_PORT_VARIABLE),
    ):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except PermissionError:
                raise StackError(
                    f"{product} may not listen on port {port}, which is reserved for root: "
                    f"set {variable} to a port above 1023."
                ) from None
            except OSError:
                raise StackError(
                    f"{product} needs port {port}, which another program uses: "
                    f"stop that program, or set {variable} to another port."
                ) from None
    if layout.web_port == layout.flower_port:
        raise StackError(
            f"{WEB_PORT_VARIABLE} and {FLOWER_PORT_VARIABLE} are both {layout.web_port}: change one of them."
        )


def require_user_namespaces() -> None:
    """Fail unless user namespaces work: jobs need them, and PostgreSQL when root starts it."""
    try:
        bwrap = find_bwrap()
        compiler.compile_host_filter()
    except SandboxUnavailable as error:
        raise StackError(str(error)) from None
    # Like the sandbox, never as root.
    identity = choose_postgres_user() if os.geteuid() == 0 else None
    user, group = identity or (None, None)
    probe = [
        str(bwrap),
        "--unshare-user",
        "--unshare-pid",
        "--unshare-net",
        "--ro-bind",
        "/",
        "/",
        "/bin/true",
    ]
    try:
        done = subprocess.run(
            probe,
            user=user,
            group=group,
            extra_groups=[] if identity else None,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_SECONDS,
            check=False,
        )
        failure = done.stderr.strip() if done.returncode != 0 else None
    except (OSError, subprocess.SubprocessError) as error:
        failure = str(error)
    if failure is not None:
        raise StackError(f"Sandboxes need user namespaces, and this machine refuses them ({failure}): {_remedy()}")


def _remedy() -> str:
    for sysctl, (forbidding, command) in _USER_NAMESPACE_SYSCTLS.items():
        try:
            if Path(sysctl).read_text().strip() == forbidding:
                return f"as root, run `{command}`, then start again."
        except OSError:
            continue
    return (
        "in a container, run it with `--security-opt seccomp=unconfined "
        "--security-opt systempaths=unconfined`; elsewhere, allow them in the kernel's configuration."
    )


def _require_ownership(path: Path) -> None:
    owner = path.stat().st_uid
    if owner != os.geteuid():
        raise StackError(
            f"{path} belongs to {_get_user_name(owner)}, and you are {_get_user_name(os.geteuid())}: "
            f"run this as {_get_user_name(owner)}, or point PUNCTUAL_VAR to a directory of your own."
        )


def _require_writable(directory: Path) -> None:
    probe = directory / ".writable"
    probe.write_bytes(b"0" * 4096)
    probe.unlink()


def _get_user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
