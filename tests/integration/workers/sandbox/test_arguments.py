"""Bubblewrap's arguments: paths from a job are created only in a tmpfs that is new for its run.

Before 0.12 bubblewrap follows symbolic links below a target's parents while it builds a sandbox (CVE-2026-87766).
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import pytest

from tests.support.driving import PATH, execute
from workers.sandbox.host import Host
from workers.sandbox.memory_files import memory_file
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.slots.launcher import BuiltSandbox, SlotProcess
from workers.sandbox.slots.slot_process import FIRST_DESCRIPTOR
from workers.sandbox.values import InputFile, Program

# Options that create or mount something, by the number of arguments; the last one is the target.
CREATING = {"--tmpfs": 1, "--dir": 1, "--proc": 1, "--dev": 1, "--mqueue": 1}
FROM_SOURCE = {"--file": 2, "--symlink": 2, "--bind": 2, "--ro-bind": 2, "--dev-bind": 2, "--bind-data": 2}
FROM_SOURCE |= {"--ro-bind-data": 2, "--bind-try": 2, "--ro-bind-try": 2, "--dev-bind-try": 2, "--overlay-src": 1}
WRITABLE = ("/work", "/tmp", "/dev/shm")


@dataclass(frozen=True)
class Operation:
    option: str
    source: str
    target: PurePosixPath


@pytest.fixture(params=[True, False], ids=["shared root", "own root"])
def sandbox(host: Host, request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    opened = Sandbox(replace(host, slots_share=request.param))
    yield opened
    opened.close()


def operations(arguments: Sequence[str]) -> list[Operation]:
    found = []
    for index, option in enumerate(arguments):
        if option in CREATING:
            found.append(Operation(option, "", PurePosixPath(arguments[index + 1])))
        elif option in FROM_SOURCE:
            found.append(Operation(option, arguments[index + 1], PurePosixPath(arguments[index + FROM_SOURCE[option]])))
    return found


def told_to_bubblewrap(sandbox: Sandbox, program: Program, patch: pytest.MonkeyPatch) -> list[Operation]:
    recorded: list[list[str]] = []
    launch = SlotProcess.launch

    def listen(slot: SlotProcess, argv: Sequence[str], *given: object, **named: object) -> BuiltSandbox:
        descriptors = given[2]
        assert isinstance(descriptors, list)
        assert argv[1] == "--args"
        listed = descriptors[int(argv[2]) - FIRST_DESCRIPTOR]
        recorded.append(os.pread(listed, os.fstat(listed).st_size, 0).decode().split("\0"))
        return launch(slot, argv, *given, **named)  # type: ignore[arg-type]

    with patch.context() as during:
        during.setattr(SlotProcess, "launch", listen)
        assert execute(sandbox, program).outcome.exit_code == 0
    (arguments,) = recorded
    return operations(arguments)


def test_job_paths_are_created_only_in_a_fresh_tmpfs(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = Program(("/bin/true",), PATH)
    content = memory_file(b"x")
    files = (InputFile("deep/er/file", content), InputFile("tmp/x", content, executable=True))
    given = replace(bare, files=(*files, InputFile("out/x", content, private=True)))
    ours = told_to_bubblewrap(sandbox, bare, monkeypatch)
    everything = told_to_bubblewrap(sandbox, given, monkeypatch)
    os.close(content)
    added = [each for each in everything if each.target not in {one.target for one in ours}]
    assert {str(each.target) for each in added} == {"/work/deep/er/file", "/work/tmp/x", "/work/out/x"}
    fresh = next(i for i, each in enumerate(everything) if each == Operation("--tmpfs", "", PurePosixPath("/work")))
    for each in added:
        assert each.option == "--file", "a copy, not a mount of anything outside"
        assert everything.index(each) > fresh
    # Sources of mounts are system directories, never writable by a job.
    mounted = [each.source for each in everything if "bind" in each.option]
    assert mounted
    assert not [path for path in mounted if any(PurePosixPath(path).is_relative_to(place) for place in WRITABLE)]
