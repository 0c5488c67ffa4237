"""The self-test: all probes hold on a sound host, and each fails on a deliberately weakened one."""

import dataclasses
import itertools
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from workers.sandbox import sandbox as building
from workers.sandbox.bubblewrap import command_line
from workers.sandbox.cgroups.lifecycle import CgroupParents
from workers.sandbox.errors import SandboxError
from workers.sandbox.host import Host
from workers.sandbox.run import Run
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.seccomp import compiler
from workers.sandbox.self_test import runner
from workers.sandbox.self_test.runner import PROBES, SHELL_PROBES, SelfTestResult, run_self_test
from workers.sandbox.values import Limits, Program

PYTHON = "/usr/bin/python3"
ALLOW_EVERYTHING = struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)

Weaken = Callable[[pytest.MonkeyPatch], None]


def _result(host: Host, directory: Path, python: str | None = PYTHON) -> SelfTestResult:
    sandbox = Sandbox(host)
    try:
        return run_self_test(
            sandbox, worker_directory=directory, python=python, memory_is_metered=host.memory_is_metered
        )
    finally:
        sandbox.close()


def test_self_test_without_python_lists_skipped_probes(host: Host, tmp_path: Path) -> None:
    result = _result(host, tmp_path, python=None)
    assert set(result.held) == set(SHELL_PROBES)
    assert set(result.not_tried) == set(PROBES) - set(SHELL_PROBES)
    assert not result.failed
    assert not result.trustworthy


def test_memory_is_not_trusted_without_cgroups(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory outside of processes is refused; without the filter, a program could take all of the machine's."""
    bare = dataclasses.replace(host, cgroups=CgroupParents())
    result = _result(bare, tmp_path)
    assert (result.failed, result.not_tried, result.trustworthy) == ({}, (), False)
    monkeypatch.setattr(bare.__class__, "memory_is_metered", True)
    assert set(_result(bare, tmp_path).failed) == {"unseen-memory"}


def without_the_filter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compiler, "compile_host_filter", lambda memory_is_metered: ALLOW_EVERYTHING)


def with_all_capabilities(patch: pytest.MonkeyPatch) -> None:
    without_the_filter(patch)
    _isolate_with(patch, lambda arguments: [argument.replace("--cap-drop", "--cap-add") for argument in arguments])


def with_user_namespaces(patch: pytest.MonkeyPatch) -> None:
    without_the_filter(patch)
    _leave_out(patch, "--disable-userns")


def with_the_hosts_network(patch: pytest.MonkeyPatch) -> None:
    _leave_out(patch, "--unshare-net")
    patch.setattr(building, "REQUIRED_NAMESPACES", building.REQUIRED_NAMESPACES - {"net"})


def with_the_hosts_processes(patch: pytest.MonkeyPatch) -> None:
    arguments = command_line.own_root_arguments()
    at = arguments.index("--proc")
    changed = [*arguments[:at], "--bind", "/proc", "/proc", *arguments[at + 2 :]]
    patch.setattr(command_line, "own_root_arguments", lambda: changed)


def with_files_of_the_host(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(command_line, "SYSTEM_CONFIGURATION", (*command_line.SYSTEM_CONFIGURATION, "/var/lib"))


def with_a_writable_root(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(command_line, "remount_arguments", lambda slot_shares: ["--chdir", "/work"])


@dataclass(frozen=True)
class Changed:
    """A sandbox with a deliberate weakness."""

    limits: Mapping[str, float] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    before: str = ""

    def __call__(self, patch: pytest.MonkeyPatch) -> None:
        original = Sandbox.start

        def start(sandbox: Sandbox, program: Program, limits: Limits) -> Run:
            argv = ("/bin/sh", "-c", f'{self.before} exec "$@"', "sh", *program.argv) if self.before else program.argv
            environment = {**program.environment, **self.environment}
            changed = dataclasses.replace(limits, **self.limits)  # type: ignore[arg-type]
            return original(sandbox, Program(argv, environment), changed)

        patch.setattr(Sandbox, "start", start)


# Device nodes are the one probe that cannot be made to fail: in a user namespace the kernel always refuses them.
@pytest.mark.parametrize(
    ("weaken", "expected"),
    [
        (
            without_the_filter,
            {"namespaces", "tracing", "keyrings", "kernel-interfaces", "odd-sockets", "set-id-bits"},
        ),
        (with_all_capabilities, {"mounting", "namespaces", "privileges"}),
        (with_user_namespaces, {"namespaces"}),
        (with_the_hosts_network, {"interfaces", "network"}),
        (with_the_hosts_processes, {"host-processes"}),
        (with_files_of_the_host, {"host-files"}),
        (with_a_writable_root, {"writing"}),
        (Changed(limits={"disk_bytes": 2**30}), {"disk"}),
        (Changed(limits={"memory_bytes": 2**30}), {"memory", "unseen-memory"}),
        (Changed(limits={"processes": 1000}), {"processes"}),
        (Changed(environment={"PUNCTUAL_TEST_SECRET": "swordfish"}), {"environment"}),
        (Changed(before="exec 7< /dev/null;"), {"descriptors"}),
    ],
)
def test_weak_host_is_detected(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weaken: Weaken, expected: set[str]
) -> None:
    weaken(monkeypatch)
    monkeypatch.setattr(runner, "MEMORY_PROBE_SCRIPT", runner.MEMORY_PROBE_SCRIPT.replace("sleep 5", "sleep 0.1"))
    # Without shared slots, so that each run's own namespaces and root can be left out.
    result = _result(dataclasses.replace(host, slots_share=False), tmp_path)
    assert expected <= set(result.failed), result
    assert not result.trustworthy
    for name in expected:
        assert f"{name} (" in result.problem
    assert "swordfish" not in result.problem


def test_worker_directory_below_usr_is_detected(host: Host) -> None:
    result = _result(host, Path("/usr/lib"))
    assert result.failed == {"worker-directory": "there is /usr/lib"}


def test_probe_that_times_out_was_not_tried(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Changed(limits={"memory_bytes": 2**30, "wall_seconds": 0.3})(monkeypatch)
    result = _result(host, tmp_path)
    assert {"memory", "unseen-memory"} <= set(result.not_tried)
    assert not result.trustworthy


def test_sandbox_built_at_second_try_is_accepted(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, starts = Sandbox.start, itertools.count()

    def start(sandbox: Sandbox, program: Program, limits: Limits) -> Run:
        if next(starts) < 2:
            raise SandboxError("The sandbox was not built in time.")
        return original(sandbox, program, limits)

    monkeypatch.setattr(Sandbox, "start", start)
    assert _result(host, tmp_path).held == tuple(PROBES)


def test_sandbox_that_cannot_be_built_is_reported(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _leave_out(monkeypatch, "--unshare-net")
    result = _result(dataclasses.replace(host, slots_share=False), tmp_path)
    assert set(result.failed) == {"building"}
    assert "shares namespaces with the host: net" in result.problem
    assert "memory" in result.not_tried


def _leave_out(patch: pytest.MonkeyPatch, argument: str) -> None:
    _isolate_with(patch, lambda arguments: [each for each in arguments if each != argument])


def _isolate_with(patch: pytest.MonkeyPatch, change: Callable[[Sequence[str]], list[str]]) -> None:
    arguments = command_line.isolation_arguments(slot_shares=False)
    changed = change(arguments)
    assert changed != arguments
    patch.setattr(command_line, "isolation_arguments", lambda slot_shares: list(changed))
