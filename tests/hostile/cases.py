"""Table of hostile programs: inputs, expected outcome and expected observations from outside.

`holds` is the number of attempts that the program must report as impossible; a program that prints ESCAPED fails the
test. The checks for all programs (nothing left, no secret printed, no decoy visited) are in `stage`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from jobs.domain import limits as conf
from workers.run.outputs import CollectedOutputs
from workers.sandbox.cgroups.files import SLOT_MEMORY_BYTES
from workers.sandbox.values import ExitReason, Limits, Outcome

MEBIBYTE = 1024 * 1024
INODES = 200_000
LIMITS = Limits(
    wall_seconds=20,
    memory_bytes=64 * MEBIBYTE,
    disk_bytes=4 * MEBIBYTE,
    cpus=2,
    processes=24,
    open_files=256,
    output_bytes=4 * MEBIBYTE,
)
EXIT, TIMEOUT, OUT_OF_MEMORY = (ExitReason.EXIT,), (ExitReason.TIMEOUT,), (ExitReason.OUT_OF_MEMORY,)


@dataclass(frozen=True)
class Seen:
    outcome: Outcome
    stdout: bytes
    stderr: bytes
    files: Mapping[str, bytes]
    collected: CollectedOutputs
    most_processes: int
    limits: Limits
    cgroup: bool
    receipt: Mapping[str, object]


def nothing(seen: Seen) -> None:
    pass


@dataclass(frozen=True)
class Case:
    program: str
    holds: int | None = None
    ends: tuple[ExitReason, ...] = EXIT
    limits: Limits = LIMITS
    check: Callable[[Seen], None] = nothing
    counted: bool = False  # its processes are counted from outside
    then: str | None = None  # the next program in the same slot
    then_holds: int = 1
    concurrent: bool = False  # `then` runs while this one does, once it has printed "taken"
    given_input: bool = False
    sharing: bool = True  # if the host allows it
    check_then: Callable[[Seen], None] = nothing

    @property
    def name(self) -> str:
        return self.program.partition(".")[0] + ("" if self.sharing else "_without_sharing")

    def following(self) -> "Case":
        return Case(
            program=self.then or "",
            holds=self.then_holds,
            limits=replace(self.limits, wall_seconds=20),
            sharing=self.sharing,
        )


def few_processes(seen: Seen) -> None:
    assert 1 < seen.most_processes <= seen.limits.processes + 1, seen.most_processes  # plus bubblewrap's pid 1


def memory_stayed_small(seen: Seen) -> None:
    most = seen.limits.memory_bytes + seen.limits.disk_bytes + SLOT_MEMORY_BYTES
    if seen.cgroup:
        assert (seen.outcome.peak_memory_bytes or 0) <= most


def output_was_cut(seen: Seen) -> None:
    assert seen.outcome.output_truncated
    assert len(seen.stdout) + len(seen.stderr) == seen.limits.output_bytes


def cpu_was_shared(seen: Seen) -> None:
    if seen.cgroup:
        allowed = seen.limits.cpus * (seen.outcome.ended_at - seen.outcome.started_at).total_seconds()
        assert (seen.outcome.cpu_seconds or 0) <= allowed * 1.3 + 0.15, seen.outcome


def only_own_file(seen: Seen) -> None:
    assert {name: data.strip() for name, data in seen.files.items()} == {"file": b"mine"}, seen.collected
    assert seen.collected.problems
    assert all(problem.isprintable() for problem in seen.collected.problems)


def no_files(seen: Seen) -> None:
    assert seen.files == {}, seen.files.keys()


def sparse_files_within_the_limit(seen: Seen) -> None:
    sparse = {name: data for name, data in seen.files.items() if name.startswith("sparse-")}
    assert len(sparse) == 40
    assert all(data == bytes(MEBIBYTE) for data in sparse.values())
    assert seen.files["terabyte"] == b""


def only_harmless_names(seen: Seen) -> None:
    assert all(name.isprintable() and "/" not in name and "\\" not in name for name in seen.files), seen.files
    assert {"...", "-rf", "~", "$(reboot)", "a" * 255, "*", "..%2f..%2fetc%2fpasswd"} <= set(seen.files)
    assert len(seen.collected.problems) == 14, seen.collected.problems
    assert all(problem.isprintable() for problem in seen.collected.problems)


def deep_is_left_out(seen: Seen) -> None:
    assert seen.files == {"file": b"mine"}
    assert len(seen.collected.problems) == 1
    assert len(seen.collected.problems[0]) < 2000


def many_are_cut(seen: Seen) -> None:
    assert len(seen.files) == conf.MAX_OUTPUT_FILES
    assert len(seen.collected.problems) == 1


def few_problems(seen: Seen) -> None:
    assert seen.files == {"file": b"mine"}
    assert 0 < len(seen.collected.problems) <= 100
    assert sum(map(len, seen.collected.problems)) < 100_000


def unreadable_is_read(seen: Seen) -> None:
    assert seen.files == {
        name: f"out/{name}".encode() for name in ("secret", "listed/file", "closed/file", "closed/inner/file")
    }


def daemon_was_gone(seen: Seen) -> None:
    assert set(seen.files.values()) <= {b"kept"}
    assert set(seen.files) <= {"kept/file", "moved/file"}


def bytes_are_exact(seen: Seen) -> None:
    assert seen.stdout.startswith(b"\x1b[2J\x1b]0;owned\x07")
    assert b"nul\x00nul\nbell\x07 back\x08space \x7f\n" in seen.stdout
    assert b"invalid \xff\xfe \xc3\x28 \xed\xa0\x80 \xf5\x80\x80\x80 cut \xe2\x82\n" in seen.stdout
    assert seen.stdout.endswith(b"data: fake\n\nevent: end\n\n")
    assert seen.stderr == b"Traceback \x1b[1A\x1b[2K\r\n"


def huge_line_is_exact(seen: Seen) -> None:
    assert seen.stdout == "\u20ac".encode() * 700_000


def room_for_itself(seen: Seen) -> None:
    assert seen.outcome.exit_code == 0
    if seen.cgroup:
        assert (seen.outcome.peak_memory_bytes or 0) < LIMITS.memory_bytes, "not its predecessor's"
        assert (seen.outcome.cpu_seconds or 0) < 5, "not its predecessor's"


SMALL = replace(LIMITS, wall_seconds=8, memory_bytes=32 * MEBIBYTE, disk_bytes=2 * MEBIBYTE)
SHORT = replace(LIMITS, wall_seconds=0.6)

CASES = [
    # bombs
    Case(
        "fork_bomb.py",
        None,
        TIMEOUT,
        replace(SHORT, wall_seconds=1, memory_bytes=256 * MEBIBYTE),  # its processes alone must not exceed the limit
        few_processes,
        counted=True,
        then="find_room.py",
        then_holds=3,
    ),
    Case("fork_until_refused.py", 1),
    Case("thread_bomb.py", 1),
    Case("zombie_bomb.py", 1, then="find_room.py", then_holds=3),
    Case(
        "memory_bomb.py",
        None,
        OUT_OF_MEMORY,
        SMALL,
        memory_stayed_small,
        then="find_room.py",
        then_holds=3,
        check_then=room_for_itself,
    ),
    Case("memory_in_children.py", None, OUT_OF_MEMORY, SMALL, memory_stayed_small),
    Case("memory_in_memfds.py", None, (*OUT_OF_MEMORY, *EXIT), SMALL, memory_stayed_small),
    Case("memory_in_segments.py", None, (*OUT_OF_MEMORY, *EXIT), SMALL, memory_stayed_small),
    Case("memory_in_sockets.py", None, (*OUT_OF_MEMORY, *EXIT), SMALL, memory_stayed_small),
    Case("disk_bomb.py", 3, limits=replace(LIMITS, memory_bytes=128 * MEBIBYTE)),
    Case("inode_bomb.py", None, (*OUT_OF_MEMORY, *EXIT), SMALL, then="find_room.py", then_holds=3),
    Case("output_bomb.py", None, TIMEOUT, SHORT, output_was_cut),
    Case("output_flood.py", 0, check=output_was_cut),
    Case("descriptor_bomb.py", 2),
    Case("progress_bomb.py", None, TIMEOUT, SHORT),
    Case("extended_attributes.py", None, (*OUT_OF_MEMORY, *EXIT), SMALL, memory_stayed_small),
    Case("silent_runner.py", None, TIMEOUT, replace(SHORT, wall_seconds=0.3)),
    Case("stopped.py", None, TIMEOUT, replace(SHORT, wall_seconds=0.3), then="find_room.py", then_holds=3),
    Case(
        "cpu_burner.py",
        None,
        TIMEOUT,
        replace(LIMITS, wall_seconds=1, cpus=0.25),
        cpu_was_shared,
        then="find_room.py",
        then_holds=3,
    ),
    Case("daemon.py", 1, check=daemon_was_gone),
    # reading
    Case("read_secrets.py", 1),
    Case("read_memory.py", 1),
    Case("read_host_files.py", 18),
    Case("kernel_files.py", 32),
    Case("others.py", 5),
    Case("descriptors.py", 6),
    Case("own_descriptors_only.sh", 2),
    Case("stdin_rewritten.py", 6, given_input=True),
    # the network
    Case("servers.py", 18),
    Case("metadata.py", 14),
    Case("unix_sockets.py", 8),
    Case("socket_kinds.py", 16),
    # the kernel
    Case("tracing.py", 4),
    Case("process_memory_calls.py", 2),
    Case("pidfd_getfd.py", 2),
    Case("mounts.py", 8),
    Case("new_mounts.py", 7),
    Case("unshare.py", 9),
    Case("clone_namespaces.py", 7),
    Case("clone3.py", 3),
    Case("setns.py", 11),
    Case("nested_user_namespace.py", 4),
    Case("keyrings.py", 4),
    Case("io_uring.py", 2),
    Case("kernel_programs.py", 7),
    Case("file_handles.py", 4),
    Case("machine.py", 15),
    Case("io_ports.py", 2),
    Case("clocks.py", 3),
    Case("ia32_calls.py", 1),
    Case("x32_calls.py", 3),
    Case("personality.py", 3),
    Case("becoming_root.py", 9),
    Case("setuid_programs.py", 4),
    Case("setuid_bits.py", 10),
    Case("device_nodes.py", 17),
    Case("terminals.py", 9),
    Case("cgroup_escape.py", 5),
    Case("program_of_pid_1.py", 7),
    Case("pid_1.py", 4),
    Case("kill_everybody.py", 4),
    Case("rlimits.py", 8),
    Case("scheduling.py", 7),
    Case("memory_file_program.py", 1),
    Case("deleted_directory.py", 3),
    Case("symlinks_everywhere.py", 1, check=no_files, then="find_files.py", then_holds=4),
    Case("watchers.py", 2, (ExitReason.KILLED,), then="watch_one.py", concurrent=True),
    # leftovers of one run for the next
    Case("leave_files.py", 1, then="find_files.py", then_holds=4),
    Case("leave_ipc.py", 1, then="find_ipc.py", then_holds=5),
    Case("leave_sockets.py", 1, then="find_sockets.py", then_holds=10),
    Case("leave_flow_label.py", 1, then="find_traces.py", then_holds=10),
    Case("leave_circle.py", 1, then="find_traces.py", then_holds=10),
    # without shared slots, each run has a sandbox of its own
    Case("program_of_pid_1.py", 7, sharing=False),
    Case("read_secrets.py", 1, sharing=False),
    Case("read_host_files.py", 18, sharing=False),
    Case("others.py", 5, sharing=False),
    Case("descriptors.py", 6, sharing=False),
    Case("leave_files.py", 1, then="find_files.py", then_holds=4, sharing=False),
    Case("leave_sockets.py", 1, then="find_sockets.py", then_holds=10, sharing=False),
    # outputs
    Case("out_links.sh", 1, check=only_own_file),
    Case("out_special.py", 2, check=only_own_file),
    Case("out_hard_links.py", 4, check=only_own_file),
    Case("out_sparse.py", 2, check=sparse_files_within_the_limit),
    Case("out_names.py", 1, check=only_harmless_names),
    Case("out_deep.py", 1, check=deep_is_left_out),
    Case(
        "out_many.py",
        1,
        limits=replace(LIMITS, memory_bytes=512 * MEBIBYTE, disk_bytes=128 * MEBIBYTE),
        check=many_are_cut,
    ),
    Case("out_many_bad.py", 1, limits=replace(LIMITS, memory_bytes=512 * MEBIBYTE), check=few_problems),
    Case("out_unreadable.py", 1, check=unreadable_is_read),
    Case("out_replaced.sh", 1, check=no_files),
    Case("out_is_a_file.sh", 1, check=no_files),
    Case("out_results.py", 1, check=nothing),
    # logs
    Case("log_injection.py", 0, check=bytes_are_exact),
    Case("log_huge_line.py", 0, check=huge_line_is_exact),
]
