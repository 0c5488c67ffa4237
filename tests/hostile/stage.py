"""Runs one hostile program in the real sandbox and inspects the host before and after it.

It runs in a separate worker process, as root and as an ordinary user, hence the standard library only.
"""

import dataclasses
import json
import os
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from jobs.domain.worker_protocol import StoredOutput
from tests.hostile.cases import CASES, INODES, Case, Seen
from tests.hostile.decoys import SECRET, Decoys, decoys, make_secret
from tests.support.driving import PATH, children, processes_in_namespace_of, slot_cgroups
from tests.support.waiting import eventually
from tests.support.worker_process import serve
from workers.run.outputs import collect_outputs
from workers.sandbox.host import Host, detect_host
from workers.sandbox.run import Run
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.values import InputFile, Limits, Program, Stream

PROGRAMS = Path(__file__).parent / "programs"
PYTHONS = ("/usr/local/bin/python3", "/usr/bin/python3")
VICTIM_LIMITS = Limits(wall_seconds=600, memory_bytes=2**26, disk_bytes=2**20, cpus=0.1, processes=4)


@dataclass
class Watched:
    """Observations of a run from outside while it lasted."""

    run: Run
    namespace: int  # keeps the namespace open, so that its number is not reused
    most_processes: int = 0
    streams: dict[Stream, bytearray] = field(default_factory=lambda: {stream: bytearray() for stream in Stream})

    def record(self, stream: Stream, data: bytes) -> None:
        self.streams[stream] += data

    def count(self) -> None:
        while alive := processes_in_namespace_of(self.run.pid):
            self.most_processes = max(self.most_processes, alive)


class Stage:
    def __init__(self, host: Host, found: Decoys) -> None:
        self._host = host
        self._decoys = found
        self._python = next(path for path in PYTHONS if Path(path).exists())
        self._closing = ExitStack()
        self._sandbox = Sandbox(host)
        self._unshared = Sandbox(dataclasses.replace(host, slots_share=False))
        self._closing.callback(self._sandbox.close)
        self._closing.callback(self._unshared.close)
        self._victim_said = bytearray()
        self._running: list[Run] = []
        self._victim = self._start_victim()
        launchers = [pid for pid in children(os.getpid()) if b"launcher" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        self._known = {**found.arguments, "launcher": launchers[0], "victim": self._victim.pid}
        self._facts = self._host_facts()

    def play(self, name: str) -> Mapping[str, object]:
        case = next(case for case in CASES if case.name == name)
        seen = self._run(case.program, case)
        case.check(seen)
        if case.then is not None and not case.concurrent:
            case.check_then(self._run(case.then, case.following()))
        return {"uid": seen.receipt["uid"]}

    def end(self) -> None:
        """Check that the other run was not affected and that nothing remains."""
        pid = self._victim.pid
        assert processes_in_namespace_of(pid) > 0, "the other run is alive"
        self._closing.close()
        assert bytes(self._victim_said) == b"ready\n"
        assert eventually(lambda: children(os.getpid()) == []), "no process remains"
        assert slot_cgroups(os.getpid()) == [], "no cgroup remains"

    def _run(self, program: str, case: Case) -> Seen:
        watched: list[Watched] = []

        def observe(run: Run) -> None:
            assert os.stat(f"/proc/{run.pid}/ns/net").st_ino != os.stat("/proc/self/ns/net").st_ino
            watched.append(Watched(run, os.open(f"/proc/{run.pid}/ns/pid", os.O_RDONLY)))

        bucket: dict[str, bytes] = {}

        def store(output: StoredOutput, body: IO[bytes]) -> None:
            body.seek(0)
            bucket[output.name] = body.read()
            assert len(bucket[output.name]) == output.size

        with ExitStack() as opened:
            made = self._program(program, case.limits, opened)
            if case.given_input:
                given = opened.enter_context(self._decoys.input_file.open("rb"))
                made = dataclasses.replace(made, stdin=given.fileno())
            sandbox = self._sandbox if case.sharing else self._unshared
            run = opened.enter_context(sandbox.start(made, case.limits, observe))
            self._running.append(run)
            opened.callback(self._running.remove, run)
            counter = threading.Thread(target=watched[0].count, daemon=True)
            if case.counted:
                counter.start()
                opened.callback(counter.join)

            def record(stream: Stream, data: bytes) -> None:
                watched[0].record(stream, data)
                if case.concurrent and watched[0].streams[Stream.STDOUT].endswith(b"taken\n"):
                    try:
                        case.check_then(self._run(case.then or "", case.following()))
                    finally:
                        run.kill()

            outcome = run.stream(record)
            collected = collect_outputs(run.output_directory, store)
        seen = Seen(
            outcome=outcome,
            stdout=bytes(watched[0].streams[Stream.STDOUT]),
            stderr=bytes(watched[0].streams[Stream.STDERR]),
            files=bucket,
            collected=collected,
            most_processes=watched[0].most_processes,
            limits=case.limits,
            cgroup=self._host.cgroup_mode != "none",
            receipt=outcome.receipt,
        )
        try:
            self._judge(case, seen, os.fstat(watched[0].namespace).st_ino)
        finally:
            os.close(watched[0].namespace)
        return seen

    def _program(self, name: str, limits: Limits, opened: ExitStack) -> Program:
        def file(path: str, source: str) -> InputFile:
            return InputFile(path, opened.enter_context(open(PROGRAMS / source, "rb")).fileno())

        if name.endswith(".sh"):
            return Program(("/bin/sh", "/work/program.sh"), PATH, (file("program.sh", name),))
        known = {
            **self._known,
            "processes": limits.processes,
            "memory": limits.memory_bytes,
            "disk": limits.disk_bytes,
            "descriptors": limits.open_files,
            "inodes": INODES,
            "seconds": limits.wall_seconds,
        }
        files = (file("program.py", name), file("attack.py", "attack.py"))
        return Program((self._python, "-BES", "/work/program.py", json.dumps(known)), PATH, files)

    def _judge(self, case: Case, seen: Seen, namespace: int) -> None:
        """Check what applies to every program."""
        output = seen.stdout + seen.stderr
        shown = output[-4000:].decode(errors="replace")
        assert b"ESCAPED" not in output, shown
        printed = output + b"".join(seen.files.values())
        assert not SECRET.search(printed.decode(errors="replace")), shown
        assert seen.outcome.reason in case.ends, f"{seen.outcome}\n{shown}"
        if case.holds is not None:
            assert seen.outcome.exit_code in (0, None), f"{seen.outcome}\n{shown}"
            assert seen.stdout.count(b"held ") == case.holds, f"{seen.stdout.count(b'held ')} verdicts\n{shown}"
        assert _processes_in(namespace) == [], "no process remains"
        assert self._strangers() == set(), "no process remains in a cgroup"
        assert self._decoys.visits() == {}, "no decoy was visited"
        assert processes_in_namespace_of(self._victim.pid) == 2, "the other run is alive"
        before, self._facts = self._facts, self._host_facts()
        assert before == self._facts, "the host is unchanged"

    def _strangers(self) -> set[int]:
        """Return processes in the cgroups that belong neither to slots nor to the other run."""
        slots = {slot for launcher in children(os.getpid()) for slot in children(launcher)}
        lasting = {run.pid for run in (self._victim, *self._running)}
        known = {monitor for slot in slots for monitor in children(slot) if lasting & set(children(monitor))}
        for pid in lasting:
            known |= set(_processes_in(os.stat(f"/proc/{pid}/ns/pid").st_ino))
        inside = {int(pid) for path in slot_cgroups(os.getpid()) for pid in (path / "cgroup.procs").read_text().split()}
        return inside - slots - known

    def _host_facts(self) -> Mapping[str, object]:
        bwrap = self._host.bwrap.stat()
        facts: dict[str, object] = {"bwrap": (bwrap.st_mode, bwrap.st_size, bwrap.st_mtime, bwrap.st_nlink)}
        for name in ("core_pattern", "hostname", "domainname"):
            facts[name] = Path(f"/proc/sys/kernel/{name}").read_text()
        for path in (self._decoys.secret_file, self._decoys.input_file):
            facts[path.name] = (path.read_text(), path.stat().st_mode, path.stat().st_mtime, os.listxattr(path))
        for path in (PROGRAMS, Path("/dev/null"), Path("/usr/bin/env")):
            facts[path.name] = (path.stat().st_mode, path.stat().st_uid, path.stat().st_nlink)
        facts["launcher"] = self._known["launcher"] in children(os.getpid())
        return facts

    def _start_victim(self) -> Run:
        with ExitStack() as opened:
            files = [opened.enter_context(open(PROGRAMS / name, "rb")) for name in ("victim.py", "attack.py")]
            secret = make_secret()
            program = Program(
                (self._python, "-BES", "/work/victim.py", "{}", secret),
                {**PATH, "SECRET": secret},
                tuple(InputFile(Path(file.name).name, file.fileno()) for file in files),
            )
            run = self._closing.enter_context(self._sandbox.start(program, VICTIM_LIMITS))

        def listen() -> None:
            run.stream(lambda stream, data: self._victim_said.extend(data))

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        self._closing.callback(listener.join)
        self._closing.callback(run.kill)
        assert eventually(lambda: b"ready" in self._victim_said)
        return run


def _processes_in(namespace: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.stat(entry / "ns/pid").st_ino == namespace:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def main() -> int:
    assert SECRET.search(os.environ["DECOY_SECRET"])
    in_memory = make_secret().encode()
    host = detect_host()
    with tempfile.TemporaryDirectory(prefix="punctual-decoys-") as name:
        Path(name).chmod(0o755)  # world-readable, but must be unreachable
        with decoys(Path(name)) as found:
            stage = Stage(host, found)
            serve(lambda name: stage.end() if name == "end" else stage.play(name))
    return len(in_memory) == 0


if __name__ == "__main__":
    sys.exit(main())
