"""Compiler of the seccomp filter that every program in a sandbox runs under.

Invariant: system calls that are not allowed by name do not exist; no argument of an allowed call creates a namespace, a
socket of an unusual family, a set-user-id file or a device. Calls of other ABIs kill the process.
"""

import errno
import functools
import hashlib
import os
import stat
import struct
from collections.abc import Iterable, Set
from types import ModuleType

from workers.sandbox.errors import SandboxUnavailable
from workers.sandbox.seccomp.syscalls import ALLOWED, NO_OPERATION, REFUSED, UNMETERED

NEW_NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
SET_ID_BITS = (stat.S_ISUID, stat.S_ISGID)
DEVICES = (stat.S_IFCHR, stat.S_IFBLK)
CREATE_FLAGS = (os.O_CREAT, 0o20000000)  # __O_TMPFILE; without either, the mode argument is undefined
UNIX, INET, INET6, NETLINK, NETLINK_ROUTE = 1, 2, 10, 16, 0
SOCKET_TYPE_MASK = 0xF  # the rest are flags
# Rarely used protocols that would load a kernel module: reliable datagrams, SCTP, DCCP, L2TP, UDP-Lite.
REFUSED_SOCKET_TYPES = (4, 5, 6)
REFUSED_PROTOCOLS = (33, 115, 132, 136)
TERMINAL_INJECTIONS = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX
INT_MASK = 0xFFFFFFFF  # the kernel reads an int: the upper bits must not matter
MODE_ARGUMENT = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mkdir": 1, "mkdirat": 2}
NODE_ARGUMENT = {"mknod": 1, "mknodat": 2}
OPEN_ARGUMENTS = {"open": (1, 2), "openat": (2, 3)}  # flags and mode
# Default and 32 bits, both with and without UNAME26; the last one queries the current personality.
PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, INT_MASK)

INSTRUCTION = struct.Struct("=HBBI")
RETURN, JUMP = 0x06, 0x05
RETURN_ALLOW = 0x7FFF0000


@functools.cache
def compile_host_filter(*, memory_is_metered: bool = True) -> bytes:
    """Return this machine's filter for bubblewrap; raise SandboxUnavailable if it cannot be compiled.

    Without a cgroup, nothing counts memory outside of processes, so the calls that allocate it are refused; programs
    can use /dev/shm and /tmp, which have a limited size.
    """
    refused = frozenset() if memory_is_metered else UNMETERED
    return compile_filter(_load_library().system_arch(), refused)


@functools.cache
def hash_host_filter(*, memory_is_metered: bool = True) -> str:
    """Return the SHA-256 of the filter, for the receipt of a run."""
    return hashlib.sha256(compile_host_filter(memory_is_metered=memory_is_metered)).hexdigest()


def resolve_syscall_numbers(names: Iterable[str]) -> dict[str, int]:
    """Return this machine's numbers of these system calls, without those that it lacks."""
    library = _load_library()
    found = {name: int(library.resolve_syscall(library.system_arch(), name)) for name in names}
    return {name: number for name, number in found.items() if number >= 0}


def compile_filter(architecture: int, refused: Set[str] = frozenset()) -> bytes:
    """Compile a filter; `architecture` is one of `pyseccomp.Arch`, `refused` are additional calls to refuse."""
    library = _load_library()
    if architecture not in (library.Arch.X86_64, library.Arch.AARCH64):
        raise SandboxUnavailable("There is no system call filter for this machine: use one with x86-64 or arm64.")
    try:
        names = _FilterBuilder(library, architecture).compile_names(refused)
        return _chain(_FilterBuilder(library, architecture).compile_arguments(), names)
    except OSError as error:
        raise SandboxUnavailable(
            f"The system call filter cannot be compiled ({error}): install libseccomp 2.5 or newer."
        ) from error


def _load_library() -> ModuleType:
    try:
        import pyseccomp  # noqa: PLC0415  (the import fails without the C library)
    except (ImportError, RuntimeError, OSError) as error:
        raise SandboxUnavailable(
            "The system call filter cannot be compiled without libseccomp: install your distribution's package"
            f" (libseccomp2 or libseccomp) and, with pip, pyseccomp ({error})."
        ) from error
    module: ModuleType = pyseccomp
    return module


class _FilterBuilder:
    def __init__(self, library: ModuleType, architecture: int) -> None:
        self._library = library
        self._architecture = architecture

    def compile_names(self, refused: Set[str]) -> bytes:
        library = self._library
        self._open(library.ERRNO(errno.ENOSYS))
        # A binary tree over the numbers if the library supports it, instead of a linear search.
        self._filter.set_attr(library.Attr.CTL_OPTIMIZE, 2)
        actions = [
            (library.ALLOW, ALLOWED - {"personality"} - refused),
            (library.ERRNO(0), NO_OPERATION),
            (library.ERRNO(errno.EPERM), REFUSED),
        ]
        for action, names in actions:
            for name in sorted(names):
                self._rule(action, name)
        for value in PERSONALITIES:
            self._rule(library.ALLOW, "personality", self._match_argument(0, INT_MASK, value))
        return self._export_bpf()

    def compile_arguments(self) -> bytes:
        """Compile a filter that refuses arguments and allows everything else.

        It is separate because libseccomp lets a rule that allows a whole call override those for its arguments.
        """
        library = self._library
        self._open(library.ALLOW)
        refuse = library.ERRNO(errno.EPERM)
        for flag in NEW_NAMESPACES:
            self._rule(refuse, "clone", self._match_argument(0, flag, flag))
        for request in TERMINAL_INJECTIONS:
            self._rule(refuse, "ioctl", self._match_argument(1, INT_MASK, request))
        for bit in SET_ID_BITS:
            for name, at in (MODE_ARGUMENT | NODE_ARGUMENT).items():
                self._rule(refuse, name, self._match_argument(at, bit, bit))
            for name, (flags_at, mode_at) in OPEN_ARGUMENTS.items():
                for flag in CREATE_FLAGS:
                    self._rule(
                        refuse,
                        name,
                        self._match_argument(flags_at, flag, flag),
                        self._match_argument(mode_at, bit, bit),
                    )
        for name, at in NODE_ARGUMENT.items():
            for kind in DEVICES:
                self._rule(refuse, name, self._match_argument(at, stat.S_IFMT(0xFFFF), kind))
        for name in ("socket", "socketpair"):
            self._refuse_families(library.ERRNO(errno.EAFNOSUPPORT), name)
        for family in (INET, INET6):
            inet = library.Arg(0, library.EQ, family)
            for kind in REFUSED_SOCKET_TYPES:
                self._rule(
                    library.ERRNO(errno.ESOCKTNOSUPPORT),
                    "socket",
                    inet,
                    self._match_argument(1, SOCKET_TYPE_MASK, kind),
                )
            for protocol in REFUSED_PROTOCOLS:
                self._rule(
                    library.ERRNO(errno.EPROTONOSUPPORT), "socket", inet, self._match_argument(2, INT_MASK, protocol)
                )
        return self._export_bpf()

    def _refuse_families(self, refuse: int, name: str) -> None:
        library = self._library
        for family in set(range(NETLINK)) - {UNIX, INET, INET6}:
            self._rule(refuse, name, library.Arg(0, library.EQ, family))
        self._rule(refuse, name, library.Arg(0, library.GT, NETLINK))
        self._rule(refuse, name, library.Arg(0, library.EQ, NETLINK), library.Arg(2, library.NE, NETLINK_ROUTE))

    def _open(self, default: int) -> None:
        library = self._library
        self._filter = library.SyscallFilter(default)
        if self._architecture != library.system_arch():
            self._filter.add_arch(self._architecture)
            self._filter.remove_arch(library.system_arch())
        self._filter.set_attr(library.Attr.ACT_BADARCH, library.KILL_PROCESS)

    def _rule(self, action: int, name: str, *arguments: object) -> None:
        # Negative: unknown to the library or this architecture, and unknown calls fail with ENOSYS.
        if self._library.resolve_syscall(self._architecture, name) >= 0:
            self._filter.add_rule_exactly(action, name, *arguments)

    def _match_argument(self, argument: int, mask: int, value: int) -> object:
        return self._library.Arg(argument, self._library.MASKED_EQ, mask, value)

    def _export_bpf(self) -> bytes:
        with open(os.memfd_create("filter", os.MFD_CLOEXEC), "w+b") as file:
            self._filter.export_bpf(file)
            file.seek(0)
            return file.read()


def _chain(first: bytes, second: bytes) -> bytes:
    """Join two filters: calls that the first one allows are checked by the second."""
    count = len(first) // INSTRUCTION.size
    chained = b""
    for index, instruction in enumerate(INSTRUCTION.iter_unpack(first)):
        if instruction == (RETURN, 0, 0, RETURN_ALLOW):
            chained += INSTRUCTION.pack(JUMP, 0, 0, count - index - 1)
        else:
            chained += INSTRUCTION.pack(*instruction)
    return chained + second
