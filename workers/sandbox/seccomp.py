"""Compiles the filter of system calls that every program in a sandbox runs under.

Invariant: a call is allowed by name or it is not there; of those that are allowed, no argument makes a namespace, a
socket of an odd family, a set-user-id file or a device. Other ABIs, which have numbers of their own, are killed.
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
from workers.sandbox.syscalls import ALLOWED, REFUSED, UNMETERED, WITHOUT_EFFECT

NEW_NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
SET_ID_BITS = (stat.S_ISUID, stat.S_ISGID)
DEVICES = (stat.S_IFCHR, stat.S_IFBLK)
CREATING = (os.O_CREAT, 0o20000000)  # __O_TMPFILE; without either the register of the mode holds anything
UNIX, INET, INET6, NETLINK, NETLINK_ROUTE = 1, 2, 10, 16, 0
KIND = 0xF  # the rest are flags
# What would only load a kernel module that hardly anybody uses: reliable datagrams, SCTP, DCCP, L2TP, UDP-Lite.
ODD_KINDS = (4, 5, 6)
ODD_PROTOCOLS = (33, 115, 132, 136)
TERMINAL_INJECTIONS = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX
INT = 0xFFFFFFFF  # the kernel reads an int: what stands above it must not make a difference
MODE_ARGUMENT = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mkdir": 1, "mkdirat": 2}
NODE_ARGUMENT = {"mknod": 1, "mknodat": 2}
OPEN_ARGUMENTS = {"open": (1, 2), "openat": (2, 3)}  # the flags and the mode
PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, INT)  # none, the same of another release, 32 bits of either, a question

INSTRUCTION = struct.Struct("=HBBI")
RETURN, JUMP = 0x06, 0x05
RETURN_ALLOW = 0x7FFF0000


@functools.cache
def program(*, memory_is_metered: bool = True) -> bytes:
    """The filter of this machine, as bubblewrap takes it; raise SandboxUnavailable if it cannot be made.

    Where only the kernel could tell what memory a run holds outside of its processes, and has no cgroup to tell it
    of, calls that take such memory are refused; /dev/shm and /tmp, which have a size, are there instead.
    """
    refused = frozenset() if memory_is_metered else UNMETERED
    return compile_for(_library().system_arch(), refused)


@functools.cache
def digest(*, memory_is_metered: bool = True) -> str:
    """What tells one filter from another, for the receipt of a run."""
    return hashlib.sha256(program(memory_is_metered=memory_is_metered)).hexdigest()


def numbers(names: Iterable[str]) -> dict[str, int]:
    """Those of this machine; what it does not have is left out."""
    library = _library()
    found = {name: int(library.resolve_syscall(library.system_arch(), name)) for name in names}
    return {name: number for name, number in found.items() if number >= 0}


def compile_for(architecture: int, refused: Set[str] = frozenset()) -> bytes:
    """`architecture` is one of `pyseccomp.Arch`; `refused` are calls that are allowed elsewhere."""
    library = _library()
    if architecture not in (library.Arch.X86_64, library.Arch.AARCH64):
        raise SandboxUnavailable("There is no system call filter for this machine: use one with x86-64 or arm64.")
    try:
        names = _Filter(library, architecture).of_names(refused)
        return _chained(_Filter(library, architecture).of_arguments(), names)
    except OSError as error:
        raise SandboxUnavailable(
            f"The system call filter cannot be compiled ({error}): install libseccomp 2.5 or newer."
        ) from error


def _library() -> ModuleType:
    try:
        import pyseccomp  # noqa: PLC0415  (fails while it is imported where the C library is missing)
    except (ImportError, RuntimeError, OSError) as error:
        raise SandboxUnavailable(
            "The system call filter cannot be made without libseccomp: install your distribution's package"
            f" (libseccomp2 or libseccomp) and, with pip, pyseccomp ({error})."
        ) from error
    module: ModuleType = pyseccomp
    return module


class _Filter:
    def __init__(self, library: ModuleType, architecture: int) -> None:
        self._library = library
        self._architecture = architecture

    def of_names(self, refused: Set[str]) -> bytes:
        library = self._library
        self._open(library.ERRNO(errno.ENOSYS))
        # A tree over the numbers, where the library can: else the last name waits for all the others.
        self._filter.set_attr(library.Attr.CTL_OPTIMIZE, 2)
        actions = [
            (library.ALLOW, ALLOWED - {"personality"} - refused),
            (library.ERRNO(0), WITHOUT_EFFECT),
            (library.ERRNO(errno.EPERM), REFUSED),
        ]
        for action, names in actions:
            for name in sorted(names):
                self._rule(action, name)
        for value in PERSONALITIES:
            self._rule(library.ALLOW, "personality", self._has(0, INT, value))
        return self._compiled()

    def of_arguments(self) -> bytes:
        """Says no to arguments alone, yes to all else: beside a yes by name, a no by argument would not be heard."""
        library = self._library
        self._open(library.ALLOW)
        refuse = library.ERRNO(errno.EPERM)
        for flag in NEW_NAMESPACES:
            self._rule(refuse, "clone", self._has(0, flag, flag))
        for request in TERMINAL_INJECTIONS:
            self._rule(refuse, "ioctl", self._has(1, INT, request))
        for bit in SET_ID_BITS:
            for name, at in (MODE_ARGUMENT | NODE_ARGUMENT).items():
                self._rule(refuse, name, self._has(at, bit, bit))
            for name, (flags_at, mode_at) in OPEN_ARGUMENTS.items():
                for flag in CREATING:
                    self._rule(refuse, name, self._has(flags_at, flag, flag), self._has(mode_at, bit, bit))
        for name, at in NODE_ARGUMENT.items():
            for kind in DEVICES:
                self._rule(refuse, name, self._has(at, stat.S_IFMT(0xFFFF), kind))
        for name in ("socket", "socketpair"):
            self._refuse_families(library.ERRNO(errno.EAFNOSUPPORT), name)
        for family in (INET, INET6):
            inet = library.Arg(0, library.EQ, family)
            for kind in ODD_KINDS:
                self._rule(library.ERRNO(errno.ESOCKTNOSUPPORT), "socket", inet, self._has(1, KIND, kind))
            for protocol in ODD_PROTOCOLS:
                self._rule(library.ERRNO(errno.EPROTONOSUPPORT), "socket", inet, self._has(2, INT, protocol))
        return self._compiled()

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
        # Below zero: the library or this architecture does not know it, and what is unknown is ENOSYS.
        if self._library.resolve_syscall(self._architecture, name) >= 0:
            self._filter.add_rule_exactly(action, name, *arguments)

    def _has(self, argument: int, mask: int, value: int) -> object:
        return self._library.Arg(argument, self._library.MASKED_EQ, mask, value)

    def _compiled(self) -> bytes:
        with open(os.memfd_create("filter", os.MFD_CLOEXEC), "w+b") as file:
            self._filter.export_bpf(file)
            file.seek(0)
            return file.read()


def _chained(first: bytes, second: bytes) -> bytes:
    """One program that goes on with the second where the first would allow the call."""
    count = len(first) // INSTRUCTION.size
    chained = b""
    for index, instruction in enumerate(INSTRUCTION.iter_unpack(first)):
        if instruction == (RETURN, 0, 0, RETURN_ALLOW):
            chained += INSTRUCTION.pack(JUMP, 0, 0, count - index - 1)
        else:
            chained += INSTRUCTION.pack(*instruction)
    return chained + second
