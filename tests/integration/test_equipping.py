"""What a worker offers of its machine's sandbox, once it has tried it."""

from __future__ import annotations

import dataclasses
import os
import struct
import sys
from pathlib import Path

import pytest
from django.test import override_settings

from workers import bootstep
from workers.configuration import WorkerSettings
from workers.equipping import INPUTS, SECRETS, UNTRUSTED_OK, Workshop, open_workshop
from workers.errors import WorkerCannotStart
from workers.sandbox import seccomp
from workers.sandbox.self_test import PROBES

ALLOW_EVERYTHING = struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)


@pytest.fixture
def settings(tmp_path: Path) -> WorkerSettings:
    return WorkerSettings("alpha", "default", 1, 1.0, 64, 64, str(tmp_path / "state"), 1, 1)


@pytest.fixture
def weak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "program", lambda memory_is_metered: ALLOW_EVERYTHING)


def leave(workshop: Workshop) -> None:
    workshop.sandbox.close()
    os.close(workshop.lock)


def test_a_sound_host_offers_to_run_what_nobody_trusts(settings: WorkerSettings) -> None:
    workshop = open_workshop(settings)
    leave(workshop)
    assert (UNTRUSTED_OK in workshop.offer.capabilities) == (workshop.offer.details["cgroups"] != "none")
    assert {INPUTS, SECRETS} <= set(workshop.offer.capabilities)
    assert workshop.offer.refusal == ""
    assert workshop.offer.details["self_test"] == {"held": len(PROBES), "failed": {}, "not_tried": []}


def test_a_worker_that_cannot_open_secrets_does_not_offer_to(settings: WorkerSettings) -> None:
    workshop = open_workshop(settings, secrets=False)
    leave(workshop)
    assert INPUTS in workshop.offer.capabilities
    assert SECRETS not in workshop.offer.capabilities


@pytest.mark.parametrize("keys", ["", "k" * 32])
def test_a_worker_that_reaches_the_database_itself_opens_secrets_if_it_has_keys(
    monkeypatch: pytest.MonkeyPatch, keys: str
) -> None:
    asked = []

    def open_no_workshop(_settings: WorkerSettings, *, secrets: bool) -> Workshop:
        asked.append(secrets)
        raise WorkerCannotStart("enough")

    monkeypatch.setattr(bootstep, "open_workshop", open_no_workshop)
    monkeypatch.setattr(bootstep, "SWITCH_SECONDS", sys.getswitchinterval())
    with override_settings(PUNCTUAL_SECRETS_KEYS=keys), pytest.raises(SystemExit, match="enough"):
        bootstep.AgentStep(None)
    assert asked == [bool(keys)]


@pytest.mark.usefixtures("weak")
def test_a_weak_host_refuses_work_and_says_why(settings: WorkerSettings, caplog: pytest.LogCaptureFixture) -> None:
    workshop = open_workshop(settings)
    leave(workshop)
    assert UNTRUSTED_OK not in workshop.offer.capabilities
    assert "keyrings (" in workshop.offer.refusal
    assert "PUNCTUAL_WORKER_ALLOW_WEAK_SANDBOX" in workshop.offer.refusal
    assert workshop.offer.refusal in caplog.text

    allowed = open_workshop(dataclasses.replace(settings, allow_weak_sandbox=True))
    leave(allowed)
    assert allowed.offer.refusal == ""
    assert UNTRUSTED_OK not in allowed.offer.capabilities
    assert "bash" in allowed.offer.capabilities
    assert "keyrings" in str(allowed.offer.details["self_test"])
    assert f"does not offer {UNTRUSTED_OK}" in caplog.text


def test_what_a_former_life_left_is_gone_before_anybody_hears_of_the_worker(settings: WorkerSettings) -> None:
    half = Path(settings.state_dir) / "artifacts" / "half.part"
    half.parent.mkdir(parents=True)
    half.touch()
    leave(open_workshop(settings))
    assert not half.exists()
