"""Secrets of jobs: granted by a version, resolved at the claim, returned to the worker only."""

from __future__ import annotations

import json
import secrets as randomness
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs.access.secrets import create_secret, rotate_secret
from jobs.dispatch.explain import explain_execution
from jobs.dispatch.placement import place_ready_executions
from jobs.domain import limits
from jobs.domain.worker_protocol import ClaimedRun, ClaimedSecret
from jobs.execution.attempts import claim_attempt
from jobs.models import Artifact, Attempt, Execution, Job, JobVersion, Queue, Secret, VersionSecret
from tests.integration.api.conftest import API, execution_of, job_body, job_of
from tests.support.factories import hold_of, make_user, make_worker, place_on
from tests.support.rest_workers import join
from tests.support.submitting import store_script

pytestmark = pytest.mark.django_db
Submit = Callable[..., dict[str, Any]]
IN_ENV = {"name": "db", "env": "DB_PASSWORD"}
IN_FILE = {"name": "tls", "file": "tls/key.pem"}
GRANT_OUTPUT = [IN_ENV | {"file": None}, IN_FILE | {"env": None}]


@pytest.fixture
def db_secret(owner: User) -> Secret:
    create_secret(owner=owner, name="tls", value="-----BEGIN\nkey")
    return create_secret(owner=owner, name="db", value="hunter2")


def patch(client: APIClient, job: dict[str, Any], **body: Any) -> dict[str, Any]:
    response = client.patch(f"{API}/jobs/{job['id']}", body, format="json")
    assert response.status_code == 200, response.content
    job_data: dict[str, Any] = response.json()
    return job_data


def claim(job: dict[str, Any]) -> ClaimedRun:
    return claim_attempt(place_on(make_worker(), execution_of(job["id"])))


def test_grants_belong_to_version_and_are_shown_by_name(submit: Submit, client: APIClient, db_secret: Secret) -> None:
    job = submit(secrets=[IN_FILE, IN_ENV])
    assert job["secrets"] == GRANT_OUTPUT
    assert client.get(f"{API}/jobs/{job['id']}").json()["secrets"] == GRANT_OUTPUT
    assert client.get(f"{API}/jobs").json()["results"][0]["secrets"] == GRANT_OUTPUT
    assert submit()["secrets"] == []
    assert patch(client, job, name="other")["version"] == 1
    assert patch(client, job, secrets=GRANT_OUTPUT)["version"] == 1, "an equal value creates no version"
    job_data = patch(client, job, args=["x"])
    assert (job_data["version"], job_data["secrets"]) == (2, GRANT_OUTPUT)
    job_data = patch(client, job, secrets=[IN_ENV])
    assert (job_data["version"], job_data["secrets"]) == (3, GRANT_OUTPUT[:1])
    assert JobVersion.objects.get(job_id=job["id"], number=1).secrets.count() == 2
    assert patch(client, job, secrets=[])["secrets"] == []


def granted_job(**changes: Any) -> dict[str, Any]:
    return {"secrets": [IN_ENV | changes]}


BAD: list[tuple[str, dict[str, Any]]] = [
    ("secrets", {"secrets": {}}),
    ("secrets", {"secrets": [{"name": "db", "env": f"A{n}"} for n in range(limits.MAX_SECRETS_PER_JOB + 1)]}),
    ("secrets.0", {"secrets": [{"name": "db"}]}),
    ("secrets.0", granted_job(env=None)),
    ("secrets.0", granted_job(file="a")),
    ("secrets.0.name", {"secrets": [{"env": "A"}]}),
    ("secrets.0.value", granted_job(value="hunter2")),
    *(("secrets.0.name", granted_job(name=name)) for name in ("", "theirs", "DB", "x" * 64, None, 5)),
    ("secrets.1.name", {"secrets": [IN_ENV, {"name": "gone", "env": "A"}]}),
    *(
        ("secrets.0.env", granted_job(env=name))
        for name in ("", "1A", "A-B", "A=B", "A\n", "é", "x" * 129, "PUNCTUAL_TOKEN", "PUNCTUAL_", 5)
    ),
    ("secrets.1.env", {"secrets": [IN_ENV, {"name": "tls", "env": "DB_PASSWORD"}]}),
    ("secrets.0.env", {"secrets": [IN_ENV], "env": {"DB_PASSWORD": "in the open"}}),
    *(
        ("secrets.0.file", {"secrets": [{"name": "db", "file": path}]})
        for path in ("", "/etc/key", "..", "a/../b", "a//b", "a\x00", "\ud800", "out/a", "program", "x" * 1025, 5)
    ),
    ("secrets.1.file", {"secrets": [IN_FILE, IN_FILE | {"name": "db"}]}),
    ("secrets.0.file", {"secrets": [IN_FILE], "inputs": [{"path": "tls/key.pem", "artifact": "OWN"}]}),
    ("secrets.0.file", {"secrets": [IN_FILE], "inputs": [{"path": "tls", "artifact": "OWN"}]}),
    ("inputs.0.path", {"secrets": [{"name": "db", "file": "a"}], "inputs": [{"path": "a/b", "artifact": "OWN"}]}),
]


def test_invalid_input_names_field_and_stores_nothing(
    client: APIClient, submit: Submit, owner: User, db_secret: Secret
) -> None:
    create_secret(owner=make_user(), name="theirs", value="hunter3")
    artifact = str(store_script(owner=owner, script="a;b\n").id)

    def send(call: Any, path: str, body: dict[str, Any]) -> Any:
        # Encoded here, because the test client's encoder rejects lone surrogates.
        text = json.dumps(body).replace('"OWN"', json.dumps(artifact))
        return call(f"{API}/{path}", text, content_type="application/json")

    job = submit()
    for field, bad in BAD:
        for response in (send(client.post, "jobs", job_body(**bad)), send(client.patch, f"jobs/{job['id']}", bad)):
            assert response.status_code == 400, (bad, response.content)
            assert response.json()["errors"][0]["field"] == field, (bad, response.json())
    assert (Job.objects.count(), VersionSecret.objects.count()) == (1, 0)
    assert job_of(job).current_version == JobVersion.objects.get()


def test_edit_is_validated_against_unchanged_fields(
    client: APIClient, submit: Submit, owner: User, db_secret: Secret
) -> None:
    artifact = str(store_script(owner=owner, script="a;b\n").id)
    job = submit(secrets=[IN_ENV, IN_FILE])
    for body in ({"env": {"DB_PASSWORD": "x"}}, {"inputs": [{"path": "tls/key.pem", "artifact": artifact}]}):
        assert client.patch(f"{API}/jobs/{job['id']}", body, format="json").status_code == 400
    Secret.objects.all().delete()
    assert patch(client, job, name="renamed")["secrets"] == GRANT_OUTPUT, "a deleted secret does not block edits"


def test_claim_returns_current_values(submit: Submit, db_secret: Secret) -> None:
    create_secret(owner=make_user(), name="db", value="of somebody else")
    job = submit(secrets=[IN_ENV, IN_FILE, {"name": "db", "env": "AGAIN"}])
    rotate_secret(db_secret.id, value="hunter3")
    claimed = claim(job)
    assert claimed.opened_secrets() == [
        ClaimedSecret("db", "hunter3", env="AGAIN"),
        ClaimedSecret("db", "hunter3", env="DB_PASSWORD"),
        ClaimedSecret("tls", "-----BEGIN\nkey", path="tls/key.pem"),
    ]
    assert "hunter3" not in repr(claimed) + repr(claimed.opened_secrets())
    assert claim(submit()).opened_secrets() == []


@pytest.mark.django_db(transaction=True)
def test_repeated_rest_claim_returns_secrets_again(submit: Submit, db_secret: Secret) -> None:
    Queue.objects.get_or_create(name="default")  # tests that commit truncate all tables, including rows of migrations
    job = submit(secrets=[IN_ENV])
    worker = join()
    worker.place(execution_of(job["id"]))
    for value in ("hunter2", "hunter3"):
        response = worker.post("claim", held=[], wait_seconds=0)
        assert response["Cache-Control"] == "no-store"
        (job_data,) = response.json()["executions"]
        assert job_data["secrets"] == [
            {"name": "db", "value": value, "env": "DB_PASSWORD", "path": None, "problem": ""},
        ]
        rotate_secret(db_secret.id, value="hunter3")


def damage(secret: Secret) -> None:
    secret.sealed = bytes(secret.sealed)[:-1] + b"\0\0"
    secret.save()


def swap(secret: Secret) -> None:
    """As if an attacker with database access had granted another user's secret to their own job."""
    foreign = create_secret(owner=make_user(), name="db", value="of somebody else")
    Secret.objects.filter(id=secret.id).update(sealed=foreign.sealed)


def lose_keys(settings: Settings) -> None:
    settings.PUNCTUAL_SECRETS_KEYS = ""


def change_keys(settings: Settings) -> None:
    settings.PUNCTUAL_SECRETS_KEYS = randomness.token_hex(32)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda secret, settings: secret.delete(), "The secret db does not exist any more."),
        (lambda secret, settings: damage(secret), "The secret db is damaged"),
        (lambda secret, settings: swap(secret), "was sealed for another owner"),
        (lambda secret, settings: lose_keys(settings), "PUNCTUAL_SECRETS_KEYS is not set"),
        (lambda secret, settings: change_keys(settings), "add it to PUNCTUAL_SECRETS_KEYS"),
    ],
)
def test_unavailable_secret_is_reported_and_withholds_the_others(
    submit: Submit, db_secret: Secret, settings: Settings, spoil: Callable[[Secret, Settings], object], words: str
) -> None:
    job = submit(secrets=[IN_ENV, {"name": "tls", "env": "TLS"}])
    spoil(db_secret, settings)
    first, second = claim(job).opened_secrets()
    assert words in first.problem
    assert (first.value, second.value) == ("", "")
    assert bool(second.problem) == ("KEYS" in words)
    assert "hunter2" not in first.problem


@pytest.mark.django_db(transaction=True)
def test_run_without_secret_fails_with_reason(submit: Submit, client: APIClient, db_secret: Secret) -> None:
    Queue.objects.get_or_create(name="default")
    job = submit(secrets=[IN_ENV])
    db_secret.delete()
    worker = join()
    execution: Execution = worker.place(execution_of(job["id"]))
    (job_data,) = worker.claim()["executions"]
    (granted_job,) = job_data["secrets"]
    ended = worker.report(execution, "complete", reason="secret_unavailable", error=granted_job["problem"])
    assert ended.status_code == 200, ended.content
    data = client.get(f"{API}/executions/{execution.id}").json()
    assert (data["status"], data["reason"]) == ("failed", "secret_unavailable")
    assert Attempt.objects.get().error == "The secret db does not exist any more."


def test_total_secret_size_is_bounded(submit: Submit, client: APIClient, owner: User, db_secret: Secret) -> None:
    count = limits.MAX_SECRET_BYTES_PER_RUN // limits.MAX_SECRET_BYTES
    large = create_secret(owner=owner, name="large", value="x" * limits.MAX_SECRET_BYTES)
    grants = [{"name": "large", "env": f"A{n}"} for n in range(count)]
    job = submit(secrets=grants)
    response = client.post(f"{API}/jobs", job_body(secrets=[*grants, IN_ENV]), format="json")
    assert (response.status_code, response.json()["errors"][0]["field"]) == (400, "secrets")
    assert [each.problem for each in claim(job).opened_secrets()] == [""] * count
    rotate_secret(large.id, value="tiny")
    grown = submit(secrets=[*grants, IN_ENV])
    rotate_secret(large.id, value="x" * limits.MAX_SECRET_BYTES)
    granted_job = claim(grown).opened_secrets()
    assert {each.value for each in granted_job} == {""}
    assert "bytes in total" in granted_job[0].problem


def test_secret_files_must_fit_in_requested_disk(submit: Submit, client: APIClient, owner: User) -> None:
    create_secret(owner=owner, name="tls", value="k" * 4096)
    program = store_script(owner=owner, script=f"echo {randomness.token_hex(8)}")
    # One page is left, which one file fills; a variable needs no disk.
    Artifact.objects.filter(id=program.id).update(size=1024 * 1024 - 4096)
    body: dict[str, Any] = {"script": None, "artifact": str(program.id)}
    submit(**body, secrets=[IN_FILE, {"name": "tls", "env": "TLS"}], requirements={"disk_mb": 1})
    body["secrets"] = [IN_FILE, IN_FILE | {"file": "other.pem"}]
    for refused in (
        client.post(f"{API}/jobs", job_body(**body, requirements={"disk_mb": 1}), format="json"),
        client.patch(
            f"{API}/jobs/{submit(**body, requirements={'disk_mb': 2})['id']}",
            {"requirements": {"disk_mb": 1}},
            format="json",
        ),
    ):
        assert refused.status_code == 400
        assert refused.json()["errors"][0]["field"] == "requirements.disk_mb"


def test_worker_without_secret_support_gets_no_job_with_secrets(submit: Submit, db_secret: Secret) -> None:
    """Otherwise it would silently run the program without them."""
    make_worker(name="old", capabilities=["bash", "inputs"])
    execution, other = execution_of(submit(secrets=[IN_ENV])["id"]), execution_of(submit()["id"])
    place_ready_executions(limit=1)
    assert hold_of(other), "it does not hide runnable executions"
    data = explain_execution(execution.id)
    (gate,) = (gate for gate in data.gates if gate.name == "capability")
    assert (gate.open, gate.words) == (False, "0 of 1 workers offer bash, secrets.")
    new = make_worker(name="new", capabilities=["bash", "secrets"])
    place_ready_executions()
    assert hold_of(execution).worker_id == new.worker_id
