"""The filter of system calls, on a machine for such programs, for both architectures."""

import errno
import hashlib
import os
import socket
import stat
import sys
from collections.abc import Callable

import pyseccomp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.sandbox.bpf import verdict
from workers.sandbox import SandboxUnavailable, seccomp
from workers.sandbox.syscalls import ABSENT, ALLOWED, REFUSED, UNMETERED, WITHOUT_EFFECT

ALLOW = pyseccomp.ALLOW
EPERM = pyseccomp.ERRNO(errno.EPERM)
ENOSYS = pyseccomp.ERRNO(errno.ENOSYS)
NO_FAMILY = pyseccomp.ERRNO(errno.EAFNOSUPPORT)
ARCHITECTURES = {"x86_64": pyseccomp.Arch.X86_64, "aarch64": pyseccomp.Arch.AARCH64}
O_TMPFILE = 0o20200000
ABOVE = 0x1_0000_0000  # a bit that the kernel does not look at where it reads an int

Call = Callable[..., int]


@pytest.fixture(scope="module", params=ARCHITECTURES)
def architecture(request: pytest.FixtureRequest) -> int:
    return int(ARCHITECTURES[request.param])


@pytest.fixture(scope="module")
def call(architecture: int) -> Call:
    program = seccomp.compile_for(architecture)

    def call(name: str, *arguments: int) -> int:
        number = pyseccomp.resolve_syscall(architecture, name)
        assert number >= 0, f"{name} does not exist here"
        return verdict(program, architecture, number, *arguments)

    return call


def test_every_number_has_the_answer_of_its_list(architecture: int) -> None:
    program = seccomp.compile_for(architecture)
    answers = {number: verdict(program, architecture, number, 1) for number in range(1000)}  # a personality, too
    expected = dict.fromkeys(range(1000), ENOSYS)
    for names, action in ((ALLOWED, ALLOW), (REFUSED, EPERM), (WITHOUT_EFFECT, pyseccomp.ERRNO(0))):
        for name in names:
            expected[pyseccomp.resolve_syscall(architecture, name)] = action
    expected[pyseccomp.resolve_syscall(architecture, "personality")] = ENOSYS
    assert answers == {number: expected[number] for number in range(1000)}


def test_the_lists_do_not_overlap() -> None:
    lists = (ALLOWED, REFUSED, ABSENT, WITHOUT_EFFECT)
    assert sum(map(len, lists)) == len(frozenset().union(*lists))


@pytest.mark.parametrize("other", ["X86", "X32", "ARM", "RISCV64"])
def test_other_abis_are_killed(architecture: int, other: str) -> None:
    program = seccomp.compile_for(architecture)
    assert verdict(program, getattr(pyseccomp.Arch, other), 1) == pyseccomp.KILL_PROCESS


def test_x32_is_killed_where_it_has_the_same_name() -> None:
    program = seccomp.compile_for(pyseccomp.Arch.X86_64)
    for number in (0, 1, 56, 500, 0x3FFFFFFE):
        assert verdict(program, pyseccomp.Arch.X86_64, 0x40000000 + number) == pyseccomp.KILL_PROCESS


@given(flags=st.integers(0, 2**64 - 1))
def test_clone_makes_no_namespace(call: Call, flags: int) -> None:
    namespaces = 0x7E020000
    assert call("clone", flags & ~namespaces) == ALLOW
    for bit in range(32):
        if namespaces >> bit & 1:
            assert call("clone", flags | 1 << bit) == EPERM


@pytest.mark.parametrize("name", ["socket", "socketpair"])
@pytest.mark.parametrize("above", [0, ABOVE])
def test_sockets_of_four_families_only(call: Call, name: str, above: int) -> None:
    for family in range(60):
        allowed = not above and family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
        assert call(name, family | above, socket.SOCK_RAW, 0) == (ALLOW if allowed else NO_FAMILY), family
    assert call(name, ABOVE - 1) == NO_FAMILY
    for protocol in (1, 2, 9, 16, ABOVE):
        assert call(name, socket.AF_NETLINK, socket.SOCK_RAW, protocol) == NO_FAMILY
        assert call(name, socket.AF_UNIX, socket.SOCK_RAW, protocol) == ALLOW


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
@pytest.mark.parametrize("flags", [0, socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, ABOVE])
def test_ordinary_internet_protocols_only(call: Call, family: int, flags: int) -> None:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        for protocol in (0, 6, 17, 1, 58, 262):
            assert call("socket", family, kind | flags, protocol) == ALLOW
        for protocol in (33, 115, 132, 136, 132 | ABOVE):
            assert call("socket", family, kind | flags, protocol) == pyseccomp.ERRNO(errno.EPROTONOSUPPORT)
    for odd in (4, 5, 6):
        assert call("socket", family, odd | flags, 0) == pyseccomp.ERRNO(errno.ESOCKTNOSUPPORT)
    assert call("socket", socket.AF_UNIX, socket.SOCK_SEQPACKET | flags, 0) == ALLOW


def test_what_keeps_memory_out_of_sight_is_absent_where_nobody_counts_it(architecture: int) -> None:
    program = seccomp.compile_for(architecture, UNMETERED)
    for name in ALLOWED - {"personality"}:
        if (number := pyseccomp.resolve_syscall(architecture, name)) >= 0:
            assert verdict(program, architecture, number, 1) == (ENOSYS if name in UNMETERED else ALLOW), name
    assert len(UNMETERED & ALLOWED) == 4


@given(mode=st.integers(0, 0xFFFF), above=st.sampled_from([0, ABOVE, 0x10000]))
def test_no_set_id_bits(call: Call, architecture: int, mode: int, above: int) -> None:
    answer = EPERM if mode & (stat.S_ISUID | stat.S_ISGID) else ALLOW
    mode |= above
    for name, at in {"fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "mkdirat": 2}.items():
        assert call(name, *[0] * at, mode) == answer, name
    for flags in (os.O_CREAT, os.O_CREAT | os.O_RDWR | os.O_EXCL, O_TMPFILE | os.O_RDWR, O_TMPFILE | os.O_CREAT):
        assert call("openat", 0, 0, flags, mode) == answer
        assert call("openat", 0, 0, flags | ABOVE, mode) == answer
    for flags in (os.O_RDONLY, os.O_RDWR | os.O_TRUNC, os.O_DIRECTORY):
        assert call("openat", 0, 0, flags, mode) == ALLOW  # there the mode is whatever the register held
    if architecture == pyseccomp.Arch.X86_64:
        for name in ("chmod", "creat", "mkdir"):
            assert call(name, 0, mode) == answer, name
        assert call("open", 0, os.O_CREAT, mode) == answer
        assert call("open", 0, os.O_RDONLY, mode) == ALLOW


@given(mode=st.integers(0, 0o1777), above=st.sampled_from([0, ABOVE]))
def test_no_devices(call: Call, mode: int, above: int) -> None:
    for kind in (0, stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK):
        assert call("mknodat", 0, 0, kind | mode | above) == ALLOW
        assert call("mknodat", 0, 0, kind | mode | stat.S_ISUID) == EPERM
    for kind in (stat.S_IFCHR, stat.S_IFBLK):
        assert call("mknodat", 0, 0, kind | mode | above) == EPERM


@pytest.mark.parametrize("request_", [0x5412, 0x541C])
def test_no_input_for_a_terminal(call: Call, request_: int) -> None:
    for above in (0, ABOVE, 0xFFFFFFFF << 32):
        assert call("ioctl", 0, request_ | above) == EPERM
    assert call("ioctl", 0, 0x5401) == ALLOW
    assert call("ioctl", 0, request_ ^ 1) == ALLOW


def test_harmless_personalities_only(call: Call) -> None:
    for value in (0, 8, 0xFFFFFFFF, 0xFFFFFFFF | ABOVE):
        assert call("personality", value) == ALLOW
    for value in (0x0040000, 0x0100000, 0x0400000):  # no random addresses, page zero mapped, readable is executable
        assert call("personality", value) == ENOSYS


def test_without_the_library_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SandboxUnavailable, match="x86-64 or arm64"):
        seccomp.compile_for(pyseccomp.Arch.RISCV64)
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    with pytest.raises(SandboxUnavailable, match="without libseccomp: install"):
        seccomp.compile_for(pyseccomp.Arch.X86_64)


def test_the_digest_names_the_program() -> None:
    program = seccomp.program(memory_is_metered=True)
    assert seccomp.digest(memory_is_metered=True) == hashlib.sha256(program).hexdigest()
    assert seccomp.digest(memory_is_metered=False) != seccomp.digest(memory_is_metered=True)
    assert len(program) // 8 < 4096  # the kernel takes no more
