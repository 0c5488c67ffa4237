"""Seccomp filter for both architectures, run by an interpreter."""

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

from tests.unit.workers.sandbox.bpf import verdict
from workers.sandbox.errors import SandboxUnavailable
from workers.sandbox.seccomp import compiler
from workers.sandbox.seccomp.syscalls import ABSENT, ALLOWED, NO_OPERATION, REFUSED, UNMETERED

ALLOW = pyseccomp.ALLOW
EPERM = pyseccomp.ERRNO(errno.EPERM)
ENOSYS = pyseccomp.ERRNO(errno.ENOSYS)
NO_FAMILY = pyseccomp.ERRNO(errno.EAFNOSUPPORT)
ARCHITECTURES = {"x86_64": pyseccomp.Arch.X86_64, "aarch64": pyseccomp.Arch.AARCH64}
O_TMPFILE = 0o20200000
ABOVE = 0x1_0000_0000  # a bit that the kernel ignores where it reads an int

Call = Callable[..., int]


@pytest.fixture(scope="module", params=ARCHITECTURES)
def architecture(request: pytest.FixtureRequest) -> int:
    return int(ARCHITECTURES[request.param])


@pytest.fixture(scope="module")
def call(architecture: int) -> Call:
    program = compiler.compile_filter(architecture)

    def call(name: str, *arguments: int) -> int:
        number = pyseccomp.resolve_syscall(architecture, name)
        assert number >= 0, f"{name} does not exist here"
        return verdict(program, architecture, number, *arguments)

    return call


def test_every_syscall_gets_the_answer_of_its_list(architecture: int) -> None:
    program = compiler.compile_filter(architecture)
    answers = {number: verdict(program, architecture, number, 1) for number in range(1000)}  # also a personality
    expected = dict.fromkeys(range(1000), ENOSYS)
    for names, action in ((ALLOWED, ALLOW), (REFUSED, EPERM), (NO_OPERATION, pyseccomp.ERRNO(0))):
        for name in names:
            expected[pyseccomp.resolve_syscall(architecture, name)] = action
    expected[pyseccomp.resolve_syscall(architecture, "personality")] = ENOSYS
    assert answers == {number: expected[number] for number in range(1000)}


def test_page_cache_of_others_cannot_be_probed(architecture: int) -> None:
    cachestat = 451  # on every architecture
    assert verdict(compiler.compile_filter(architecture), architecture, cachestat) == ENOSYS


def test_syscall_lists_do_not_overlap() -> None:
    lists = (ALLOWED, REFUSED, ABSENT, NO_OPERATION)
    assert sum(map(len, lists)) == len(frozenset().union(*lists))


@pytest.mark.parametrize("other", ["X86", "X32", "ARM", "RISCV64"])
def test_other_abis_are_killed(architecture: int, other: str) -> None:
    program = compiler.compile_filter(architecture)
    assert verdict(program, getattr(pyseccomp.Arch, other), 1) == pyseccomp.KILL_PROCESS


def test_x32_calls_are_killed() -> None:
    program = compiler.compile_filter(pyseccomp.Arch.X86_64)
    for number in (0, 1, 56, 500, 0x3FFFFFFE):
        assert verdict(program, pyseccomp.Arch.X86_64, 0x40000000 + number) == pyseccomp.KILL_PROCESS


@given(flags=st.integers(0, 2**64 - 1))
def test_clone_cannot_create_a_namespace(call: Call, flags: int) -> None:
    namespaces = 0x7E020000
    assert call("clone", flags & ~namespaces) == ALLOW
    for bit in range(32):
        if namespaces >> bit & 1:
            assert call("clone", flags | 1 << bit) == EPERM


@pytest.mark.parametrize("name", ["socket", "socketpair"])
@pytest.mark.parametrize("above", [0, ABOVE])
def test_only_four_socket_families_are_allowed(call: Call, name: str, above: int) -> None:
    for family in range(60):
        allowed = not above and family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
        assert call(name, family | above, socket.SOCK_RAW, 0) == (ALLOW if allowed else NO_FAMILY), family
    assert call(name, ABOVE - 1) == NO_FAMILY
    for protocol in (1, 2, 9, 16, ABOVE):
        assert call(name, socket.AF_NETLINK, socket.SOCK_RAW, protocol) == NO_FAMILY
        assert call(name, socket.AF_UNIX, socket.SOCK_RAW, protocol) == ALLOW


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
@pytest.mark.parametrize("flags", [0, socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, ABOVE])
def test_only_ordinary_internet_protocols_are_allowed(call: Call, family: int, flags: int) -> None:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        for protocol in (0, 6, 17, 1, 58, 262):
            assert call("socket", family, kind | flags, protocol) == ALLOW
        for protocol in (33, 115, 132, 136, 132 | ABOVE):
            assert call("socket", family, kind | flags, protocol) == pyseccomp.ERRNO(errno.EPROTONOSUPPORT)
    for odd in (4, 5, 6):
        assert call("socket", family, odd | flags, 0) == pyseccomp.ERRNO(errno.ESOCKTNOSUPPORT)
    assert call("socket", socket.AF_UNIX, socket.SOCK_SEQPACKET | flags, 0) == ALLOW


def test_unmetered_memory_calls_are_refused_without_cgroup(architecture: int) -> None:
    program = compiler.compile_filter(architecture, UNMETERED)
    for name in ALLOWED - {"personality"}:
        if (number := pyseccomp.resolve_syscall(architecture, name)) >= 0:
            assert verdict(program, architecture, number, 1) == (ENOSYS if name in UNMETERED else ALLOW), name
    assert len(UNMETERED & ALLOWED) == 4


@given(mode=st.integers(0, 0xFFFF), above=st.sampled_from([0, ABOVE, 0x10000]))
def test_set_id_bits_are_refused(call: Call, architecture: int, mode: int, above: int) -> None:
    answer = EPERM if mode & (stat.S_ISUID | stat.S_ISGID) else ALLOW
    mode |= above
    for name, at in {"fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "mkdirat": 2}.items():
        assert call(name, *[0] * at, mode) == answer, name
    for flags in (os.O_CREAT, os.O_CREAT | os.O_RDWR | os.O_EXCL, O_TMPFILE | os.O_RDWR, O_TMPFILE | os.O_CREAT):
        assert call("openat", 0, 0, flags, mode) == answer
        assert call("openat", 0, 0, flags | ABOVE, mode) == answer
    for flags in (os.O_RDONLY, os.O_RDWR | os.O_TRUNC, os.O_DIRECTORY):
        assert call("openat", 0, 0, flags, mode) == ALLOW  # without these flags the mode is undefined
    if architecture == pyseccomp.Arch.X86_64:
        for name in ("chmod", "creat", "mkdir"):
            assert call(name, 0, mode) == answer, name
        assert call("open", 0, os.O_CREAT, mode) == answer
        assert call("open", 0, os.O_RDONLY, mode) == ALLOW


@given(mode=st.integers(0, 0o1777), above=st.sampled_from([0, ABOVE]))
def test_device_nodes_are_refused(call: Call, mode: int, above: int) -> None:
    for kind in (0, stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK):
        assert call("mknodat", 0, 0, kind | mode | above) == ALLOW
        assert call("mknodat", 0, 0, kind | mode | stat.S_ISUID) == EPERM
    for kind in (stat.S_IFCHR, stat.S_IFBLK):
        assert call("mknodat", 0, 0, kind | mode | above) == EPERM


@pytest.mark.parametrize("request_", [0x5412, 0x541C])
def test_terminal_injection_is_refused(call: Call, request_: int) -> None:
    for above in (0, ABOVE, 0xFFFFFFFF << 32):
        assert call("ioctl", 0, request_ | above) == EPERM
    assert call("ioctl", 0, 0x5401) == ALLOW
    assert call("ioctl", 0, request_ ^ 1) == ALLOW


def test_only_harmless_personalities_are_allowed(call: Call) -> None:
    for value in (0, 8, 0xFFFFFFFF, 0xFFFFFFFF | ABOVE):
        assert call("personality", value) == ALLOW
    for value in (0x0040000, 0x0100000, 0x0400000):  # ADDR_NO_RANDOMIZE, MMAP_PAGE_ZERO, READ_IMPLIES_EXEC
        assert call("personality", value) == ENOSYS


def test_missing_libseccomp_is_reported_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SandboxUnavailable, match="x86-64 or arm64"):
        compiler.compile_filter(pyseccomp.Arch.RISCV64)
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    with pytest.raises(SandboxUnavailable, match="without libseccomp: install"):
        compiler.compile_filter(pyseccomp.Arch.X86_64)


def test_filter_hash_is_the_sha256_of_the_filter() -> None:
    program = compiler.compile_host_filter(memory_is_metered=True)
    assert compiler.hash_host_filter(memory_is_metered=True) == hashlib.sha256(program).hexdigest()
    assert compiler.hash_host_filter(memory_is_metered=False) != compiler.hash_host_filter(memory_is_metered=True)
    assert len(program) // 8 < 4096  # the kernel's limit
