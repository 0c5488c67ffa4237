"""Worker setup: the offer after the self-test, and leftovers of a previous process."""

from __future__ import annotations

import dataclasses
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.test import override_settings

from tests.support.driving import Recorder, limits, processes_in_namespace_of, shell
from tests.support.freezing import suspended
from workers.celery import bootstep
from workers.configuration import WorkerSettings
from workers.errors import WorkerCannotStart
from workers.lease.guardian_process import boottime
from workers.sandbox.bubblewrap import command_line
from workers.sandbox.cgroups.lifecycle import CgroupParents
from workers.sandbox.host import detect_host
from workers.sandbox.sandbox import Sandbox
from workers.sandbox.seccomp import compiler
from workers.sandbox.self_test.runner import PROBES
from workers.sandbox.slots.deadline import wait_for_runs
from workers.setup import INPUTS, RUNS_LOCK_FILE, SECRETS, UNTRUSTED_OK, WorkerHost, prepare_worker_host

LEASE = 30.0
ALLOW_EVERYTHING = struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)


@pytest.fixture
def settings(tmp_path: Path) -> WorkerSettings:
    return WorkerSettings("alpha", "default", 1, 1.0, 64, 64, str(tmp_path / "state"), 1, 1)


@pytest.fixture
def weak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "compile_host_filter", lambda memory_is_metered: ALLOW_EVERYTHING)


def leave(worker_host: WorkerHost) -> None:
    worker_host.sandbox.close()
    os.close(worker_host.lock)


def test_sound_host_offers_untrusted_ok(settings: WorkerSettings) -> None:
    worker_host = prepare_worker_host(settings, lease_seconds=LEASE)
    leave(worker_host)
    assert (UNTRUSTED_OK in worker_host.offer.capabilities) == (worker_host.offer.details["cgroups"] != "none")
    assert {INPUTS, SECRETS} <= set(worker_host.offer.capabilities)
    assert worker_host.offer.refusal == ""
    assert worker_host.offer.details["self_test"] == {"held": len(PROBES), "failed": {}, "not_tried": []}


def test_old_bubblewrap_is_logged_once(
    settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(command_line, "FIXED_VERSION", (999, 0, 0))
    unused: Any = None
    worker_host = prepare_worker_host(settings, lease_seconds=LEASE)
    worker_host.make_run_context(unused, unused, unused, unused)
    leave(worker_host)
    assert [record.levelname for record in caplog.records if "CVE-2026-87766" in record.getMessage()] == ["WARNING"]


def test_worker_without_keys_does_not_offer_secrets(settings: WorkerSettings) -> None:
    worker_host = prepare_worker_host(settings, lease_seconds=LEASE, secrets=False)
    leave(worker_host)
    assert INPUTS in worker_host.offer.capabilities
    assert SECRETS not in worker_host.offer.capabilities


@pytest.mark.parametrize("keys", ["", "k" * 32])
def test_direct_worker_with_keys_offers_secrets(monkeypatch: pytest.MonkeyPatch, keys: str) -> None:
    asked = []

    def open_no_workshop(_settings: WorkerSettings, *, lease_seconds: float, secrets: bool) -> WorkerHost:
        asked.append(secrets)
        raise WorkerCannotStart("enough")

    monkeypatch.setattr(bootstep, "prepare_worker_host", open_no_workshop)
    monkeypatch.setattr(bootstep, "SWITCH_INTERVAL_SECONDS", sys.getswitchinterval())
    with override_settings(PUNCTUAL_SECRETS_KEYS=keys), pytest.raises(SystemExit, match="enough"):
        bootstep.AgentStep(None)
    assert asked == [bool(keys)]


@pytest.mark.usefixtures("weak")
def test_weak_host_refuses_work_with_reason(settings: WorkerSettings, caplog: pytest.LogCaptureFixture) -> None:
    worker_host = prepare_worker_host(settings, lease_seconds=LEASE)
    leave(worker_host)
    assert UNTRUSTED_OK not in worker_host.offer.capabilities
    assert "keyrings (" in worker_host.offer.refusal
    assert "PUNCTUAL_WORKER_ALLOW_WEAK_SANDBOX" in worker_host.offer.refusal
    assert worker_host.offer.refusal in caplog.text

    allowed = prepare_worker_host(dataclasses.replace(settings, allow_weak_sandbox=True), lease_seconds=LEASE)
    leave(allowed)
    assert allowed.offer.refusal == ""
    assert UNTRUSTED_OK not in allowed.offer.capabilities
    assert "bash" in allowed.offer.capabilities
    assert "keyrings" in str(allowed.offer.details["self_test"])
    assert f"does not offer {UNTRUSTED_OK}" in caplog.text


def test_leftovers_of_previous_process_are_removed_before_registration(settings: WorkerSettings) -> None:
    half = Path(settings.state_dir) / "artifacts" / "half.part"
    half.parent.mkdir(parents=True)
    half.touch()
    leave(prepare_worker_host(settings, lease_seconds=LEASE))
    assert not half.exists()


@pytest.fixture
def previous(settings: WorkerSettings) -> Iterator[Sandbox]:
    """The sandbox of a previous process, without cgroups, through which leftovers could be found."""
    state = Path(settings.state_dir)
    state.mkdir()
    sandbox = Sandbox(dataclasses.replace(detect_host(), cgroups=CgroupParents()), runs=state / RUNS_LOCK_FILE)
    yield sandbox
    sandbox.close()


def test_worker_waits_for_frozen_runs_of_its_previous_process(
    settings: WorkerSettings, previous: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    previous.set_deadline(boottime() + 8)
    with previous.start(shell("while :; do sleep 0.1; done"), limits()) as run:
        monitor = psutil.Process(run.pid).parent()
        assert monitor is not None
        frozen = [monitor, *monitor.parents()[:2]]  # its slot and the launcher
        with suspended(frozen):
            leave(prepare_worker_host(settings, lease_seconds=LEASE))
            assert processes_in_namespace_of(run.pid) == 0
            assert "runs of this worker's previous process to end" in caplog.text
        run.stream(Recorder())


def test_worker_does_not_start_while_a_previous_run_lives(settings: WorkerSettings, previous: Sandbox) -> None:
    previous.set_deadline(boottime() + 600)
    endless = previous.start(shell("while :; do sleep 0.1; done"), limits())
    with endless, pytest.raises(WorkerCannotStart, match="previous process"):
        prepare_worker_host(settings, lease_seconds=0.1)
    assert wait_for_runs(Path(settings.state_dir) / RUNS_LOCK_FILE, 0), "slots without a run are not waited for"
