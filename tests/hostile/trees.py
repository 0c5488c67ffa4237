"""Random output trees of untrusted programs on a real file system, and the expected outputs."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from hypothesis import strategies as st

MOST_LEVELS = 16
LONGEST_PATH = 1024


class Kind(Enum):
    FILE = auto()
    SPARSE = auto()
    DIRECTORY = auto()
    SYMLINK = auto()
    HARD_LINK = auto()  # to the secret outside
    FIFO = auto()
    SOCKET = auto()
    DEVICE = auto()  # endless; only root can make one


@dataclass(frozen=True)
class Node:
    name: bytes
    kind: Kind
    mode: int = 0o644
    content: bytes = b""
    size: int = 0
    target: bytes = b""
    children: tuple[Node, ...] = ()


ODD_NAMES = [
    *(
        b"...",
        b".hidden",
        b" ",
        b"-rf",
        b"result.json",
        b"a",
        b"b",
        b"new\nline",
        b"tab\t",
        b"\x1b[31m",
        b"back\\slash",
    ),
    *(b"\xff", b"\xed\xa0\x80", b"x" * 255, "ü".encode(), "\u202e".encode(), "\u00ad".encode(), "名".encode() * 85),
]


@st.composite
def names(draw: st.DrawFn) -> bytes:
    """Generate any name that a directory can contain: anything but NUL and slashes."""
    made = st.one_of(st.binary(min_size=1, max_size=12), st.text(min_size=1, max_size=8).map(_encoded))
    name = draw(st.one_of(st.sampled_from(ODD_NAMES), made))
    name = name.replace(b"/", b"_").replace(b"\0", b"_")
    return b"..." if name in (b".", b"..") else name


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


MODES = st.sampled_from([0o644, 0o600, 0o400, 0o200, 0o111, 0o000, 0o777])
TARGETS = st.sampled_from(
    [b"../secret", b"/etc/passwd", b".", b"..", b"a", b"/dev/zero", b"/proc/self/environ", b"nowhere"]
)
LEAVES = st.one_of(
    st.builds(Node, names(), st.just(Kind.FILE), MODES, content=st.binary(max_size=300)),
    st.builds(Node, names(), st.just(Kind.SPARSE), MODES, size=st.integers(0, 3_000_000)),
    st.builds(Node, names(), st.just(Kind.SYMLINK), target=TARGETS),
    st.builds(Node, names(), st.sampled_from([Kind.HARD_LINK, Kind.FIFO, Kind.SOCKET, Kind.DEVICE])),
)


def _siblings(nodes: st.SearchStrategy[Node]) -> st.SearchStrategy[list[Node]]:
    return st.lists(nodes, max_size=6, unique_by=lambda node: node.name)


def _directories(nodes: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.builds(Node, names(), st.just(Kind.DIRECTORY), MODES, children=_siblings(nodes).map(tuple))


def _nested(node: Node, levels: int) -> Node:
    for _ in range(levels):
        node = Node(b"deep", Kind.DIRECTORY, 0o755, children=(node,))
    return node


@st.composite
def leaves(draw: st.DrawFn) -> Node:
    return draw(LEAVES)


DEEP = st.builds(_nested, leaves(), st.integers(1, MOST_LEVELS + 2))
TREES = _siblings(st.one_of(st.recursive(leaves(), _directories, max_leaves=12), DEEP))


@st.composite
def trees(draw: st.DrawFn) -> list[Node]:
    return draw(TREES)


def make(nodes: Sequence[Node], directory: int, secret: Path) -> None:
    """Create by descriptor, because paths may exceed the limit of a system call."""
    for node in nodes:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        if node.kind in (Kind.FILE, Kind.SPARSE):
            with open(os.open(node.name, flags, dir_fd=directory), "wb") as file:
                file.write(node.content)
                os.truncate(file.fileno(), node.size or len(node.content))
                os.fchmod(file.fileno(), node.mode)
        elif node.kind is Kind.DIRECTORY:
            os.mkdir(node.name, dir_fd=directory)
            inner = os.open(node.name, os.O_RDONLY, dir_fd=directory)
            try:
                make(node.children, inner, secret)
                os.fchmod(inner, node.mode)
            finally:
                os.close(inner)
        elif node.kind is Kind.SYMLINK:
            os.symlink(node.target, node.name, dir_fd=directory)
        elif node.kind is Kind.HARD_LINK:
            os.link(secret, node.name, dst_dir_fd=directory)
        elif node.kind is Kind.FIFO:
            os.mkfifo(node.name, dir_fd=directory)
        elif node.kind is Kind.SOCKET:
            _bind(node.name, directory)
        else:
            with contextlib.suppress(PermissionError):
                os.mknod(node.name, stat.S_IFCHR | 0o666, os.makedev(1, 5), dir_fd=directory)


def _bind(name: bytes, directory: int) -> None:
    with socket.socket(socket.AF_UNIX) as listening, contextlib.suppress(OSError):  # the path of a socket must be short
        listening.bind(f"/proc/self/fd/{directory}/".encode() + name)


def expected(nodes: Sequence[Node], prefix: str = "", levels: int = MOST_LEVELS) -> Iterator[tuple[str, bytes]]:
    """Return the expected files in order, computed from the plan alone."""
    for node in sorted(nodes, key=lambda node: os.fsdecode(node.name)):
        try:
            name = node.name.decode()
        except UnicodeDecodeError:
            continue
        path = prefix + name
        if not name.isprintable() or "\\" in name or len(path) > LONGEST_PATH:
            continue
        if node.kind is Kind.FILE:
            yield path, node.content
        elif node.kind is Kind.SPARSE:
            yield path, bytes(node.size)
        elif node.kind is Kind.DIRECTORY and levels:
            yield from expected(node.children, f"{path}/", levels - 1)


def remove(directory: Path) -> None:
    """Remove a tree whatever its modes are."""
    for found, directories, _ in os.walk(os.fsencode(directory)):
        for name in directories:
            with contextlib.suppress(OSError):
                path = os.path.join(found, name)
                if not os.path.islink(path):
                    os.chmod(path, 0o700)
    shutil.rmtree(os.fsencode(directory))
