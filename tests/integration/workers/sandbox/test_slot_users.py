"""Runs of a root worker have different uids on the host, so that the kernel isolates them in any case."""

import os
import subprocess
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.support.driving import limits, processes_in_namespace_of, shell
from tests.support.waiting import eventually
from workers.sandbox.errors import SandboxUnavailable
from workers.sandbox.host import Host
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.slots.users import DEFAULT_BASE, NOBODY, SlotUsers, choose_slot_users

# Without namespaces: on the host, as the user of one run, against the processes of the other.
ATTACK = """
import os, signal, sys
for pid in map(int, sys.argv[1:]):
    for name, attempt in {
        "signal": lambda: os.kill(pid, signal.SIGKILL),
        "environment": lambda: open(f"/proc/{pid}/environ").read(),
        "memory": lambda: open(f"/proc/{pid}/mem", "rb"),
        "files": lambda: os.listdir(f"/proc/{pid}/root/work"),
        "limits": lambda: __import__("resource").prlimit(pid, 0, (1, 1)),
    }.items():
        try:
            attempt()
        except PermissionError:
            continue
        print(name)
"""

if os.geteuid() == 0:

    @pytest.mark.parametrize("share", [True, False])
    def test_two_runs_of_a_root_worker_cannot_touch_each_other_without_their_namespaces(
        host: Host, *, share: bool
    ) -> None:
        kind = Host(host.bwrap, host.version, host.users, host.cgroups, share)
        sandboxes = [Sandbox(kind), Sandbox(kind)]  # two workers on one machine
        with ExitStack() as stack:
            for sandbox in sandboxes:
                stack.callback(sandbox.close)
            started = [sandboxes[i].start(shell("sleep 1000"), limits()) for i in (0, 0, 1)]
            for run in started:
                stack.enter_context(run)
                assert eventually(partial(is_running, run.pid))
            ids = [ids_of(run.pid) for run in started]
            for attacker, victim in ((0, 1), (1, 2), (2, 0)):
                uid = int(ids[attacker][0])
                done = subprocess.run(
                    ["/usr/bin/python3", "-I", "-S", "-c", ATTACK, str(started[victim].pid)],
                    user=uid,
                    group=uid,
                    extra_groups=[],
                    capture_output=True,
                    text=True,
                    cwd="/",
                    check=False,
                )
                assert (done.returncode, done.stdout) == (0, ""), done
            assert len({*ids}) == len({run.receipt["uid"] for run in started}) == 3, ids
            assert all(set(pair) == {str(run.receipt["uid"])} for pair, run in zip(ids, started, strict=True))


def is_running(pid: int) -> bool:
    return processes_in_namespace_of(pid) >= 2


def ids_of(pid: int) -> tuple[str, str]:
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    uids, gids = {*lines["Uid"].split()}, {*lines["Gid"].split()}
    assert (len(uids), len(gids), lines["Groups"].split()) == (1, 1, [])
    return uids.pop(), gids.pop()


def maps(directory: Path, text: str) -> Path:
    for name in ("uid_map", "gid_map"):
        (directory / name).write_text(text)
    (directory / "pid_max").write_text("4194304\n")
    return directory


def test_container_with_few_uids_uses_one_for_all_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PUNCTUAL_SANDBOX_UIDS", raising=False)
    few = maps(tmp_path, "         0       1000          1\n         1     100000      65535\n")
    assert choose_slot_users(few, few) == SlotUsers(NOBODY, uid_per_slot=False)
    many = maps(tmp_path, "         0          0 4294967295\n")
    assert choose_slot_users(many, many) == SlotUsers(DEFAULT_BASE)
    assert SlotUsers(DEFAULT_BASE).uid_of(7) == DEFAULT_BASE + 7


def test_uid_range_is_configurable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = maps(tmp_path, "         0          0 4294967295\n")
    monkeypatch.setenv("PUNCTUAL_SANDBOX_UIDS", "500000")
    assert choose_slot_users(many, many) == SlotUsers(500_000)
    for wrong in ("nobody", "1000", "-5", "2147000000"):
        monkeypatch.setenv("PUNCTUAL_SANDBOX_UIDS", wrong)
        with pytest.raises(SandboxUnavailable, match="PUNCTUAL_SANDBOX_UIDS"):
            choose_slot_users(many, many)
