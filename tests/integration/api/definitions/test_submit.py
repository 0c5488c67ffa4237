"""POST /jobs: valid jobs are stored as submitted; invalid ones name the field and store nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from jobs.access import secrets, teams
from jobs.domain.states import State
from jobs.models import Artifact, Dependency, Execution, Job, JobVersion, Schedule
from jobs.scheduling import calendars
from jobs.storage import s3
from tests.integration.api.conftest import API, execution_of, job_body
from tests.support.factories import make_job

Submit = Callable[..., dict[str, Any]]


def test_job_without_schedule_is_ready_at_once(submit: Submit) -> None:
    values = submit(script="echo hi")

    execution = execution_of(values["id"])
    assert (execution.state, execution.trigger) == (State.READY, "manual")
    assert values["status"] == "waiting"
    assert values["schedules"] == []


def test_script_becomes_a_stored_artifact_of_the_owner(submit: Submit, owner: User) -> None:
    values = submit(script="echo héllo\n")

    data = "echo héllo\n".encode()
    artifact = Artifact.objects.get(id=values["artifact"])
    assert (artifact.owner, artifact.sha256, artifact.size) == (owner, hashlib.sha256(data).hexdigest(), len(data))
    assert artifact.verified_at is not None
    assert b"".join(s3.read_artifact(artifact.sha256)) == data


def test_same_script_twice_is_one_artifact(submit: Submit) -> None:
    assert submit(script="echo same")["artifact"] == submit(script="echo same")["artifact"]


def test_every_field_is_stored_and_shown(submit: Submit, client: APIClient) -> None:
    asked = {
        "name": "nightly-report",
        "runtime": "python",
        "script": "print('hi')",
        "args": ["--day", "", " x "],
        "env": {"REGION": "eu", "EMPTY": ""},
        "schedules": [{"cron": "0 3 * * *", "timezone": "Europe/Paris", "catch_up": "all", "jitter_seconds": 5}],
        "priority": 9,
        "queue": "default",
        "requirements": {
            "cpu": 0.5,
            "memory_mb": 256,
            "disk_mb": 32,
            "capabilities": ["gpu", "gpu"],
            "resources": {"gpu": 2},
        },
        "timeout_seconds": 600,
        "deadline_seconds": 7200,
        "retry": {
            "max_attempts": 3, "backoff_seconds": 5, "backoff_factor": 2, "jitter": 0.5, "not_on_exit_codes": [2, 1, 2],
            "on_reasons": ["timeout", "exit"],
        },
        "max_concurrency": None,
        "overlap": "queue",
        "delivery": "at_least_once",
        "network": False,
    }  # fmt: skip
    response = client.post(f"{API}/jobs", asked, format="json")

    assert response.status_code == 201, response.content
    values = response.json()
    assert response["Location"] == f"{API}/jobs/{values['id']}"
    for name in (
        "name",
        "runtime",
        "args",
        "env",
        "priority",
        "queue",
        "timeout_seconds",
        "deadline_seconds",
        "max_concurrency",
        "delivery",
    ):
        assert values[name] == asked[name], name
    assert values["requirements"] == {
        "cpu": 0.5,
        "memory_mb": 256,
        "disk_mb": 32,
        "capabilities": ["gpu"],
        "resources": {"gpu": 2},
    }
    assert values["retry"] == {
        "max_attempts": 3, "backoff_seconds": 5.0, "backoff_factor": 2.0, "max_backoff_seconds": 3600.0,
        "jitter": 0.5, "on_exit_codes": None, "not_on_exit_codes": [1, 2], "on_reasons": ["exit", "timeout"],
    }  # fmt: skip
    (schedule,) = values["schedules"]
    assert (schedule["cron"], schedule["timezone"], schedule["catch_up"]) == ("0 3 * * *", "Europe/Paris", "all")
    assert values["status"] == "scheduled"
    assert values.pop("warnings") == []
    assert client.get(f"{API}/jobs/{values['id']}").json() == values


def test_submission_returns_what_read_returns(submit: Submit, client: APIClient, owner: User) -> None:
    calendars.create_calendar(owner=owner, name="holidays", dates=[date(2030, 1, 1)])
    secrets.create_secret(owner=owner, name="db", value="hunter2")
    teams.create_team(name="ops", members=[owner.username])
    first, file = submit(name="first"), submit(script="a file")["artifact"]
    at = (datetime.now(UTC) + timedelta(days=3)).isoformat()
    bodies: list[dict[str, Any]] = [
        {},
        {"team": "ops", "stdin": "text", "inputs": [{"path": "b", "artifact": file}, {"path": "a", "artifact": file}]},
        {"secrets": [{"name": "db", "file": "key"}, {"name": "db", "env": "DB"}], "overlap": "skip"},
        {"dependencies": [{"job": first["id"], "condition": "failure"}], "delivery": "at_most_once"},
        {"schedules": [{"delay_seconds": 1.5}, {"every_seconds": 1.25, "jitter_seconds": 3}, {"at": at}]},
        {"schedules": [{"solar": "sunset 48.85,2.35", "max_count": 2}, {"cron": "@daily", "ends_at": at}]},
        {"schedules": [{"cron": "H 3 * * *", "calendar": "holidays", "excluded_dates": ["2031-05-01", "2031-05-01"]}]},
    ]

    for body in bodies:
        answered = submit(**body)
        answered.pop("warnings")
        assert client.get(f"{API}/jobs/{answered['id']}").json() == answered, body


def test_defaults(submit: Submit) -> None:
    values = submit()

    assert (values["priority"], values["queue"], values["timeout_seconds"]) == (5, "default", 3600)
    assert values["requirements"] == {"cpu": 0.25, "memory_mb": 128, "disk_mb": 64, "capabilities": [], "resources": {}}
    assert values["retry"]["max_attempts"] == 1
    assert (values["max_concurrency"], values["delivery"], values["deadline_seconds"]) == (1, "at_least_once", None)


def test_interval_without_start_first_fires_one_interval_later(submit: Submit) -> None:
    values = submit(schedules=[{"every_seconds": 90.5}])

    schedule = Schedule.objects.get(job_id=values["id"])
    assert schedule.next_instant == schedule.starts_at + timedelta(seconds=90.5)
    assert schedule.next_fire_at == schedule.next_instant
    assert values["schedules"][0]["every_seconds"] == 90.5
    assert not Execution.objects.filter(job_id=values["id"]).exists()


def test_interval_with_future_start_first_fires_at_its_start(submit: Submit) -> None:
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    values = submit(schedules=[{"every_seconds": 60, "starts_at": start.isoformat()}])

    assert Schedule.objects.get(job_id=values["id"]).next_instant == start


def test_jitter_delays_firing_but_not_instant(submit: Submit) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    values = submit(schedules=[{"at": at.isoformat(), "jitter_seconds": 100}])

    schedule = Schedule.objects.get(job_id=values["id"])
    assert schedule.next_instant == at
    assert schedule.next_fire_at is not None
    assert at < schedule.next_fire_at < at + timedelta(seconds=100)


def test_dependent_waits_for_its_upstream(submit: Submit) -> None:
    upstream = submit(schedules=[{"cron": "@daily"}])
    values = submit(dependencies=[{"job": upstream["id"], "condition": "completion"}])

    assert values["dependencies"] == [{"job": upstream["id"], "condition": "completion"}]
    assert values["status"] == "waiting"
    assert not Execution.objects.filter(job_id=values["id"]).exists()


def test_upstreams_must_share_a_root(submit: Submit, client: APIClient) -> None:
    root, other = (submit(schedules=[{"cron": "@daily"}])["id"] for _ in range(2))
    left, right = (submit(dependencies=[{"job": root}])["id"] for _ in range(2))

    submit(dependencies=[{"job": left}, {"job": right}, {"job": root}])
    refused = client.post(f"{API}/jobs", job_body(dependencies=[{"job": left}, {"job": other}]), format="json")

    assert refused.status_code == 400
    assert refused.json()["errors"][0]["field"] == "dependencies"
    on_its_own = submit(schedules=[{"cron": "@daily"}], dependencies=[{"job": left}, {"job": other}])
    assert len(on_its_own["dependencies"]) == 2, "with its own schedule it waits for the latest of each"


def test_job_of_others_is_rejected_as_upstream(submit: Submit, client: APIClient) -> None:
    foreign = make_job()
    response = client.post(f"{API}/jobs", job_body(dependencies=[{"job": str(foreign.id)}]), format="json")

    assert response.status_code == 400
    assert response.json()["errors"][0]["field"] == "dependencies.0.job"


DAILY = [{"cron": "@daily"}]
PAST = "2020-01-01T00:00:00Z"
BAD: list[tuple[str, dict[str, Any]]] = [
    ("name", {"name": None}),
    ("name", {"name": ""}),
    ("name", {"name": 5}),
    ("name", {"name": "x" * 201}),
    ("name", {"name": "a\nb"}),
    ("name", {"name": "a\x00b"}),
    ("runtime", {"runtime": None}),
    ("runtime", {"runtime": "cobol"}),
    ("script", {"script": None}),
    ("script", {"script": ""}),
    ("script", {"script": "a\x00b"}),
    ("script", {"script": "\ud800"}),
    ("script", {"script": "x" * (1024 * 1024 + 1)}),
    ("script", {"runtime": "binary"}),
    ("script", {"artifact": str(uuid4())}),
    ("artifact", {"script": None, "artifact": "nonsense"}),
    ("artifact", {"script": None, "artifact": str(uuid4())}),
    ("args", {"args": "ls"}),
    ("args.0", {"args": [1]}),
    ("args.0", {"args": ["a\x00"]}),
    ("args", {"args": ["x"] * 257}),
    ("args", {"args": ["x" * 65537]}),
    ("env", {"env": []}),
    ("env.A", {"env": {"A": 1}}),
    ("env.A", {"env": {"A": "\x00"}}),
    ("env", {"env": {"1A": "x"}}),
    ("env", {"env": {"A=B": "x"}}),
    ("env", {"env": {"A\n": "x"}}),
    ("env", {"env": {"": "x"}}),
    ("env", {"env": {"PUNCTUAL_X": "x"}}),
    ("env", {"env": {"A": "x" * 65537}}),
    ("schedules", {"schedules": {}}),
    ("schedules", {"schedules": DAILY * 51}),
    ("schedules.0.cron", {"schedules": [{}]}),
    ("schedules.0.cron", {"schedules": [{"cron": "61 * * * *"}]}),
    ("schedules.0.cron", {"schedules": [{"cron": "0 0 30 2 *"}]}),
    ("schedules.1.cron", {"schedules": [{"cron": "@daily"}, {"cron": "* * * * * *"}]}),
    ("schedules.0.every_seconds", {"schedules": [{"cron": "@daily", "every_seconds": 5}]}),
    ("schedules.0.every_seconds", {"schedules": [{"every_seconds": 0}]}),
    ("schedules.0.every_seconds", {"schedules": [{"every_seconds": 1e-7}]}),
    ("schedules.0.every_seconds", {"schedules": [{"every_seconds": -5}]}),
    ("schedules.0.every_seconds", {"schedules": [{"every_seconds": 1e300}]}),
    ("schedules.0.every_seconds", {"schedules": [{"every_seconds": "5"}]}),
    ("schedules.0.every_seconds", {"schedules": [{"every_seconds": True}]}),
    ("schedules.0.at", {"schedules": [{"at": PAST}]}),
    ("schedules.0.at", {"schedules": [{"at": "2099-01-01T00:00:00"}]}),
    ("schedules.0.at", {"schedules": [{"at": "tomorrow"}]}),
    ("schedules.0.at", {"schedules": [{"at": 1}]}),
    ("schedules.0.at", {"schedules": [{"at": "9999-12-31T23:59:59-23:00"}]}),
    ("schedules.0.timezone", {"schedules": [{"cron": "@daily", "timezone": "Mars/Base"}]}),
    ("schedules.0.ends_at", {"schedules": [{"cron": "@daily", "ends_at": PAST}]}),
    ("schedules.0.starts_at", {"schedules": [{"cron": "@daily", "starts_at": "2020-01-01"}]}),
    ("schedules.0.jitter_seconds", {"schedules": [{"cron": "@daily", "jitter_seconds": -1}]}),
    ("schedules.0.catch_up", {"schedules": [{"cron": "@daily", "catch_up": "some"}]}),
    ("schedules.0.catch_up_window_seconds", {"schedules": [{"cron": "@daily", "catch_up_window_seconds": -1}]}),
    ("schedules.0.delay_seconds", {"schedules": [{"delay_seconds": -5}]}),
    ("schedules.0.solar", {"schedules": [{"solar": "moonrise 48.85,2.35"}]}),
    ("schedules.0.excluded_dates.0", {"schedules": [{"cron": "@daily", "excluded_dates": ["2030-02-30"]}]}),
    ("schedules.0.max_count", {"schedules": [{"cron": "@daily", "max_count": 0}]}),
    ("dependencies.0.job", {"schedules": DAILY, "dependencies": [{"job": str(uuid4())}]}),
    ("dependencies.0.job", {"dependencies": [{"job": str(uuid4())}]}),
    ("dependencies.0.job", {"dependencies": [{}]}),
    ("dependencies.0.condition", {"dependencies": [{"job": str(uuid4()), "condition": "maybe"}]}),
    ("priority", {"priority": 10}),
    ("priority", {"priority": -1}),
    ("priority", {"priority": 10**40}),
    ("priority", {"priority": "high"}),
    ("priority", {"priority": 1.5}),
    ("queue", {"queue": "nowhere"}),
    ("requirements", {"requirements": []}),
    ("requirements.cpu", {"requirements": {"cpu": 0}}),
    ("requirements.cpu", {"requirements": {"cpu": 1e999}}),
    ("requirements.memory_mb", {"requirements": {"memory_mb": 0}}),
    ("requirements.memory_mb", {"requirements": {"memory_mb": 2**31}}),
    ("requirements.disk_mb", {"requirements": {"disk_mb": -1}}),
    ("requirements.resources.gpu", {"requirements": {"resources": {"gpu": 0}}}),
    ("requirements.resources.gpu", {"requirements": {"resources": {"gpu": 1.5}}}),
    ("requirements.resources", {"requirements": {"resources": {"cpu": 1}}}),
    ("requirements.resources", {"requirements": {"resources": {"no spaces": 1}}}),
    ("requirements.resources", {"requirements": {"resources": {f"r{n}": 1 for n in range(17)}}}),
    ("requirements.gpus", {"requirements": {"gpus": 1}}),
    ("requirements.capabilities", {"requirements": {"capabilities": ["A B"]}}),
    ("timeout_seconds", {"timeout_seconds": 0}),
    ("timeout_seconds", {"timeout_seconds": 10**9}),
    ("retry.max_attempts", {"retry": {"max_attempts": 0}}),
    ("retry.max_attempts", {"retry": {"max_attempts": True}}),
    ("retry.attempts", {"retry": {"attempts": 3}}),
    ("retry.jitter", {"retry": {"jitter": 1.5}}),
    ("retry.on_exit_codes", {"retry": {"on_exit_codes": [0]}}),
    ("retry.not_on_exit_codes", {"retry": {"on_exit_codes": [1], "not_on_exit_codes": [2]}}),
    ("retry.max_attempts", {"delivery": "at_most_once", "retry": {"max_attempts": 2}}),
    ("deadline_seconds", {"deadline_seconds": 0}),
    ("max_concurrency", {"max_concurrency": 0}),
    ("overlap", {"overlap": "wait"}),
    ("delivery", {"delivery": "exactly_once"}),
    ("network", {"network": "perhaps"}),
    ("nmae", {"nmae": "typo"}),
]


@pytest.mark.parametrize(("field", "changes"), BAD, ids=[f"{i}-{field}" for i, (field, _) in enumerate(BAD)])
def test_invalid_job_names_field_and_stores_nothing(
    client: APIClient, bucket: None, field: str, changes: dict[str, Any]
) -> None:
    body = json.dumps(job_body(**changes)).replace("Infinity", "1e999")
    response = client.post(f"{API}/jobs", body, content_type="application/json")

    assert response.status_code == 400, response.content
    assert response["Content-Type"] == "application/problem+json"
    assert field in [error["field"] for error in response.json()["errors"]], response.json()
    for model in (Job, JobVersion, Artifact, Schedule, Dependency, Execution):
        assert not model.objects.exists(), model
