"""Core guarantees of the sandbox, as plain functions; standard library only.

They run under pytest on every kind of sandbox of this machine, and as an ordinary user with any Python it can run.
"""

import os
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from tests.support import driving
from tests.support.driving import MEBIBYTE, PATH, Recorder, execute, limits, processes_with, shell, words
from tests.support.waiting import eventually
from workers.sandbox.errors import SandboxError
from workers.sandbox.memory_files import memory_file
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.seccomp import compiler
from workers.sandbox.values import ExitReason, InputFile, Program, Stream

CASES: list[Callable[[Sandbox], None]] = []


def case(function: Callable[[Sandbox], None]) -> Callable[[Sandbox], None]:
    CASES.append(function)
    return function


@case
def output_and_exit_code(sandbox: Sandbox) -> None:
    result = execute(sandbox, "echo hello; echo oops >&2; exit 3")
    assert (result.stdout, result.stderr) == (b"hello\n", b"oops\n")
    assert (result.outcome.reason, result.outcome.exit_code) == (ExitReason.EXIT, 3)
    assert result.outcome.signal is None
    assert not result.outcome.output_truncated
    assert result.outcome.started_at.utcoffset() is not None
    assert result.outcome.started_at <= result.outcome.ended_at
    assert set(result.outcome.receipt["namespaces"]) >= {"ipc", "mnt", "net", "pid", "user", "uts"}  # type: ignore[call-overload]
    assert result.outcome.receipt["uid"] != 0


@case
def arguments_and_environment_are_exact(sandbox: Sandbox) -> None:
    awkward = ["", "two words", "--help", "ünï\n$HOME", "'\"\\"]
    environment = {"PATH": "/usr/bin:/bin", "AWKWARD": " a=b\n\"'$", "EMPTY": ""}
    program = Program(("/bin/sh", "-c", 'printf "%s\\0" "$@"; env -0', "sh", *awkward), environment)
    parts = execute(sandbox, program).stdout.decode().split("\0")
    assert parts[: len(awkward)] == awkward
    seen = dict(part.split("=", 1) for part in parts[len(awkward) :] if part)
    assert seen == {**environment, "PWD": "/work"}


@case
def the_workers_environment_is_invisible(sandbox: Sandbox) -> None:
    secret = f"secret-{uuid.uuid4()}"
    os.environ["PUNCTUAL_TEST_SECRET"] = secret
    try:
        result = execute(sandbox, "cat /proc/1/environ /proc/*/environ /proc/1/cmdline /proc/self/mountinfo; env")
    finally:
        del os.environ["PUNCTUAL_TEST_SECRET"]
    assert b"PATH=" in result.stdout
    assert secret.encode() not in result.stdout
    assert b"PUNCTUAL" not in result.stdout


@case
def only_the_standard_descriptors_are_open(sandbox: Sandbox) -> None:
    assert words(execute(sandbox, "ls /proc/self/fd").stdout) == ["0", "1", "2", "3", "4"]


@case
def program_has_no_privileges(sandbox: Sandbox) -> None:
    result = execute(
        sandbox,
        "id -u; id -g; hostname 2>/dev/null || cat /proc/sys/kernel/hostname; grep -E 'CapEff|CapPrm|CapBnd' "
        "/proc/self/status; unshare -U true && echo nested; mount -t tmpfs none /tmp && echo mounted; true",
    )
    assert words(result.stdout)[:3] == ["1000", "1000", "sandbox"]
    assert [word for word in words(result.stdout) if set(word) == {"0"}] == ["0" * 16] * 3
    assert b"nested" not in result.stdout
    assert b"mounted" not in result.stdout


@case
def every_process_runs_under_the_filter(sandbox: Sandbox) -> None:
    tries = ": > x; chmod u+s x && echo set; mkfifo f && echo fifo; mknod n c 1 3 && echo device"
    pid_1 = "until grep -q Seccomp:.2 /proc/1/status; do :; done"  # starts the program before filtering itself
    result = execute(sandbox, f"grep Seccomp: /proc/self/status; {tries}; {pid_1}")
    assert words(result.stdout) == ["Seccomp:", "2", "fifo"]
    receipt = result.outcome.receipt
    assert receipt["seccomp"] == compiler.hash_host_filter(memory_is_metered=receipt["cgroup"] != "none")


@case
def the_hosts_files_are_invisible(sandbox: Sandbox) -> None:
    checkout = Path(__file__).resolve().parent
    paths = ["/root", "/home", "/etc/shadow", "/etc/ssl/private", "/var", "/sys", "/run", "/opt", str(checkout)]
    tests = "; ".join(f"[ -e '{path}' ] && echo '{path}'" for path in paths)
    result = execute(sandbox, f"{tests}; ls /; true")
    allowed = ["bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "tmp", "usr", "work"]
    assert set(words(result.stdout)) <= set(allowed)


@case
def only_work_and_tmp_can_be_written(sandbox: Sandbox) -> None:
    places = "/ /usr /usr/bin /etc /dev /proc /proc/sys/kernel /bin /lib"
    script = f"for d in {places}; do (: > $d/x) 2>/dev/null && echo $d; done; : > /work/x && : > /tmp/x && echo fine"
    assert words(execute(sandbox, script).stdout) == ["fine"]
    left = execute(sandbox, "ls -A /work /work/out /tmp")
    assert words(left.stdout) == ["/tmp:", "/work:", "out", "/work/out:"]


@case
def the_disk_quota_holds(sandbox: Sandbox) -> None:
    script = "for d in /work /tmp; do head -c 3000000 /dev/zero > $d/f && echo over; stat -c %s $d/f; done"
    result = execute(sandbox, script, limits(disk=MEBIBYTE))
    assert b"No space left" in result.stderr
    assert all(0 < int(size) <= MEBIBYTE for size in words(result.stdout)), result.stdout
    assert result.outcome.peak_disk_bytes == 2 * MEBIBYTE


@case
def there_is_no_network(sandbox: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        port = listener.getsockname()[1]
        socket.create_connection(("127.0.0.1", port)).close()
        listener.accept()[0].close()
        result = execute(
            sandbox,
            Program(("/bin/bash", "-c", f"echo x > /dev/tcp/127.0.0.1/{port} && echo in; cat /proc/net/dev"), PATH),
        )
        assert b"refused" in result.stderr
        assert b"in\n" not in result.stdout
        interfaces = [line.split(":")[0].strip() for line in result.stdout.decode().splitlines() if ":" in line]
        assert interfaces == ["lo"]
        try:
            listener.accept()[0].close()
            raise AssertionError("the program reached the host's loopback")
        except TimeoutError:
            pass


@case
def timeout_kills_the_whole_tree(sandbox: Sandbox) -> None:
    marker = f"marker-{uuid.uuid4()}"
    # a daemon in its own session, a background child, and a program that ignores SIGTERM
    script = 'trap "" TERM; setsid sh -c "sleep 1000; : $0" & sh -c "sleep 1000; : $0" & echo ready; sleep 1000; : $0'
    alive: list[int] = []
    began = time.monotonic()
    result = execute(
        sandbox,
        shell(script, marker),
        limits(wall_seconds=0.6),
        lambda _, stdout: alive.extend(processes_with(marker)),
    )
    assert result.outcome.reason is ExitReason.TIMEOUT
    assert result.outcome.exit_code is None
    assert 0.6 <= time.monotonic() - began < 5
    assert alive
    assert processes_with(marker) == []


@case
def daemon_does_not_outlive_its_program(sandbox: Sandbox) -> None:
    marker = f"marker-{uuid.uuid4()}"
    began = time.monotonic()
    result = execute(sandbox, shell('setsid sh -c "sleep 1000; : $0" & echo left; exit 0', marker))
    assert (result.outcome.reason, result.outcome.exit_code) == (ExitReason.EXIT, 0)
    assert result.stdout == b"left\n"
    assert time.monotonic() - began < 5
    assert processes_with(marker) == []


@case
def memory_over_limit_is_reported(sandbox: Sandbox) -> None:
    hungry = "head -c 1500000000 /dev/zero | tail > /dev/null; echo survived"
    result = execute(sandbox, hungry, limits(memory=48 * MEBIBYTE, disk=MEBIBYTE))
    assert result.outcome.reason is ExitReason.OUT_OF_MEMORY
    assert result.outcome.exit_code is None
    assert b"survived" not in result.stdout or not result.outcome.exit_code


@case
def memory_is_counted_over_the_whole_tree(sandbox: Sandbox) -> None:
    quarter = "{ head -c 24000000 /dev/zero; sleep 1000; } | tail > /dev/null & "
    result = execute(sandbox, quarter * 4 + "wait", limits(memory=64 * MEBIBYTE, disk=MEBIBYTE))
    assert result.outcome.reason is ExitReason.OUT_OF_MEMORY
    within = "head -c 24000000 /dev/zero | tail > /dev/null; echo fine"
    assert execute(sandbox, within, limits(memory=64 * MEBIBYTE)).stdout == b"fine\n"


@case
def kill_from_another_thread(sandbox: Sandbox) -> None:
    ready = threading.Event()
    with sandbox.start(shell("echo ready; sleep 1000 & sleep 1000"), limits()) as run:

        def kill_twice() -> None:
            ready.wait(10)
            run.kill()
            run.kill()

        killer = threading.Thread(target=kill_twice)
        killer.start()
        outcome = run.stream(Recorder(lambda _: ready.set()))
        killer.join()
        assert outcome.reason is ExitReason.KILLED
        run.kill()
    run.kill()
    with sandbox.start(shell("sleep 1000"), limits()) as run:
        run.kill()
        assert run.stream(Recorder()).reason is ExitReason.KILLED


@case
def signals_are_distinguished_from_exits(sandbox: Sandbox) -> None:
    segv = execute(sandbox, "kill -SEGV $$").outcome
    assert (segv.reason, segv.signal, segv.exit_code) == (ExitReason.SIGNAL, 11, None)
    own_kill = execute(sandbox, "kill -KILL $$").outcome
    assert (own_kill.reason, own_kill.signal) == (ExitReason.SIGNAL, 9)
    high = execute(sandbox, "exit 255").outcome
    assert (high.reason, high.exit_code) == (ExitReason.EXIT, 255)


@case
def program_that_cannot_be_executed_is_reported(sandbox: Sandbox) -> None:
    result = execute(sandbox, Program(("/work/missing",), PATH))
    assert (result.outcome.reason, result.outcome.exit_code) == (ExitReason.EXIT, 127)
    assert b"/work/missing" in result.stderr


@case
def processes_are_bounded(sandbox: Sandbox) -> None:
    most = 0
    bomb = Program(("/bin/bash", "-c", "bomb() { bomb | bomb & }; bomb; while :; do :; done"), PATH)
    with sandbox.start(bomb, limits(wall_seconds=1, processes=20)) as run:
        while alive := driving.processes_in_namespace_of(run.pid):
            most = max(most, alive)
        run.stream(Recorder())
    assert 1 < most <= 21  # plus bubblewrap's pid 1
    result = execute(
        sandbox,
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do sleep 50 & echo started; done",
        limits(wall_seconds=2, processes=8),
    )
    assert 1 < len(words(result.stdout)) <= 8


@case
def output_beyond_the_cap_is_discarded(sandbox: Sandbox) -> None:
    result = execute(sandbox, "yes | head -c 3000000; exit 4", limits(output=100_001))
    assert len(result.stdout) == 100_001
    assert result.outcome.output_truncated
    assert result.outcome.exit_code == 4
    exact = execute(sandbox, "head -c 1000 /dev/zero", limits(output=1000)).outcome
    assert not exact.output_truncated


@case
def huge_output_on_both_streams(sandbox: Sandbox) -> None:
    script = "head -c 12000000 /dev/zero & head -c 12000000 /dev/zero >&2; wait"
    with sandbox.start(shell(script), limits()) as run:
        record = Recorder()
        assert run.stream(record).exit_code == 0
    assert [len(record.streams[stream]) for stream in Stream] == [12_000_000, 12_000_000]
    assert record.largest <= 65536


@case
def files_arrive_exactly_and_descriptors_stay_open(sandbox: Sandbox) -> None:
    content = os.urandom(300_000) + bytes(range(256))
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        offset = os.lseek(file.fileno(), 0, os.SEEK_CUR)
        files = (InputFile("data", file.fileno()), InputFile("deep/er/data", file.fileno()))
        for _ in range(2):
            result = execute(sandbox, shell("cat data; cat deep/er/data >&2", files=files))
            assert (result.stdout, result.stderr) == (content, content)
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == offset


@case
def executable_file_is_a_program(sandbox: Sandbox) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b'#!/bin/sh\necho "$0" "$1"\n')
        file.flush()
        program = Program(("/work/run", "hi"), PATH, (InputFile("run", file.fileno(), executable=True),))
        assert execute(sandbox, program).stdout == b"/work/run hi\n"
        plain = Program(("/work/run", "hi"), PATH, (InputFile("run", file.fileno()),))
        assert execute(sandbox, plain).outcome.exit_code == 127


@case
def outputs_outlive_the_run(sandbox: Sandbox) -> None:
    assert execute(sandbox, "echo one > out/a; echo two > out/b").outputs == {"a": b"one\n", "b": b"two\n"}
    timed_out = execute(sandbox, "echo part > out/a; sleep 1000", limits(wall_seconds=0.3))
    assert timed_out.outcome.reason is ExitReason.TIMEOUT
    assert timed_out.outputs == {"a": b"part\n"}
    assert execute(sandbox, "rm -r out; mkdir out; echo new > out/a").outputs == {"a": b"new\n"}
    assert execute(sandbox, "echo x > out/a; chmod 000 out /work").outputs == {"a": b"x\n"}
    assert execute(sandbox, "rm -r out; mkdir out; echo x > out/a; chmod 000 out").outputs == {"a": b"x\n"}


@case
def outputs_never_lead_outside(sandbox: Sandbox) -> None:
    assert execute(sandbox, "rmdir out; ln -s /etc out").outputs == {}
    assert execute(sandbox, "rmdir out; echo x > out").outputs == {}
    assert execute(sandbox, "echo x > out/a; chmod 000 out; mv out elsewhere; ln -s / out").outputs == {"a": b"x\n"}


@case
def slow_reader_does_not_stop_the_time_limit(sandbox: Sandbox) -> None:
    gone: list[bool] = []
    with sandbox.start(shell("yes"), limits(wall_seconds=0.4)) as run:

        def slow(stream: Stream, data: bytes) -> None:
            if not gone:
                gone.append(eventually(lambda: driving.processes_in_namespace_of(run.pid) == 0, seconds=8))

        outcome = run.stream(slow)
    assert gone == [True]
    assert outcome.reason is ExitReason.TIMEOUT
    assert (outcome.ended_at - outcome.started_at).total_seconds() < 4


@case
def error_of_the_reader_kills_the_run(sandbox: Sandbox) -> None:
    marker = f"marker-{uuid.uuid4()}"

    def fail(stream: Stream, data: bytes) -> None:
        raise KeyError("reader")

    try:
        with sandbox.start(shell("echo x; sleep 1000; : $0", marker), limits()) as run:
            run.stream(fail)
        raise AssertionError("the error was swallowed")
    except KeyError:
        assert processes_with(marker) == []


@case
def leaving_the_context_kills_the_run(sandbox: Sandbox) -> None:
    marker = f"marker-{uuid.uuid4()}"
    with sandbox.start(shell("sleep 1000; : $0", marker), limits()):
        assert eventually(lambda: bool(processes_with(marker)))
    assert processes_with(marker) == []


@case
def sandbox_that_cannot_be_built_raises(sandbox: Sandbox) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b"x" * 2_000_000)
        file.flush()
        too_big = shell("true", files=(InputFile("big", file.fileno()),))
        small = InputFile("a", memory_file(b"x"))
        clash = shell("true", files=(small, InputFile("a/b", small.descriptor)))
        outside = shell("true", files=(InputFile("../big", file.fileno()),))
        for program in (clash, too_big, outside, Program((), PATH), shell("a\0b")):
            try:
                execute(sandbox, program, limits(disk=MEBIBYTE))
                raise AssertionError(f"{program} was started")
            except SandboxError:
                pass
        os.close(small.descriptor)
    assert execute(sandbox, "echo still works").stdout == b"still works\n"


@case
def usage_is_measured(sandbox: Sandbox) -> None:
    script = "head -c 40000000 /dev/zero | tail > /dev/null & i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; wait"
    outcome = execute(sandbox, script + "; sleep 0.3").outcome
    assert outcome.cpu_seconds is not None
    assert 0.02 < outcome.cpu_seconds < 20
    assert outcome.peak_memory_bytes is not None
    assert outcome.peak_memory_bytes < 133 * MEBIBYTE


@case
def many_runs_at_once(sandbox: Sandbox) -> None:
    answers: dict[int, bytes] = {}

    def one(number: int) -> None:
        answers[number] = execute(sandbox, f"sleep 0.1; echo {number}").stdout

    threads = [threading.Thread(target=one, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == {number: f"{number}\n".encode() for number in range(12)}
