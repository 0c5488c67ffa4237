"""Secrets of jobs: named by a version, given at the claim as they are then, and to nobody but the worker."""

from __future__ import annotations

import json
import secrets as randomness
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings
from rest_framework.test import APIClient

from jobs import conf
from jobs.models import Artifact, Attempt, Execution, Job, JobVersion, Queue, Secret, VersionSecret
from jobs.protocol import Claimed, ClaimedSecret
from jobs.services.artifacts import store_script
from jobs.services.attempts import claim_attempt
from jobs.services.explaining import explain_execution
from jobs.services.placement import place_ready_executions
from jobs.services.secrets import create_secret, rotate_secret
from tests.factories import hold_of, make_user, make_worker, place_on
from tests.integration.api.conftest import API, execution_of, job_body, job_of
from tests.integration.api.rest_workers import join

pytestmark = pytest.mark.django_db
Submit = Callable[..., dict[str, Any]]
IN_ENV = {"name": "db", "env": "DB_PASSWORD"}
IN_FILE = {"name": "tls", "file": "tls/key.pem"}
SHOWN = [IN_ENV | {"file": None}, IN_FILE | {"env": None}]


@pytest.fixture
def db_secret(owner: User) -> Secret:
    create_secret(owner=owner, name="tls", value="-----BEGIN\nkey")
    return create_secret(owner=owner, name="db", value="hunter2")


def patch(client: APIClient, job: dict[str, Any], **body: Any) -> dict[str, Any]:
    response = client.patch(f"{API}/jobs/{job['id']}", body, format="json")
    assert response.status_code == 200, response.content
    shown: dict[str, Any] = response.json()
    return shown


def claim(job: dict[str, Any]) -> Claimed:
    return claim_attempt(place_on(make_worker(), execution_of(job["id"])))


def test_grants_belong_to_the_version_and_are_shown_by_name(
    submit: Submit, client: APIClient, db_secret: Secret
) -> None:
    job = submit(secrets=[IN_FILE, IN_ENV])
    assert job["secrets"] == SHOWN
    assert client.get(f"{API}/jobs/{job['id']}").json()["secrets"] == SHOWN
    assert client.get(f"{API}/jobs").json()["results"][0]["secrets"] == SHOWN
    assert submit()["secrets"] == []
    assert patch(client, job, name="other")["version"] == 1
    assert patch(client, job, secrets=SHOWN)["version"] == 1, "it says the same"
    shown = patch(client, job, args=["x"])
    assert (shown["version"], shown["secrets"]) == (2, SHOWN)
    shown = patch(client, job, secrets=[IN_ENV])
    assert (shown["version"], shown["secrets"]) == (3, SHOWN[:1])
    assert JobVersion.objects.get(job_id=job["id"], number=1).secrets.count() == 2
    assert patch(client, job, secrets=[])["secrets"] == []


def given(**changes: Any) -> dict[str, Any]:
    return {"secrets": [IN_ENV | changes]}


BAD: list[tuple[str, dict[str, Any]]] = [
    ("secrets", {"secrets": {}}),
    ("secrets", {"secrets": [{"name": "db", "env": f"A{n}"} for n in range(conf.MAX_SECRETS_PER_JOB + 1)]}),
    ("secrets.0", {"secrets": [{"name": "db"}]}),
    ("secrets.0", given(env=None)),
    ("secrets.0", given(file="a")),
    ("secrets.0.name", {"secrets": [{"env": "A"}]}),
    ("secrets.0.value", given(value="hunter2")),
    *(("secrets.0.name", given(name=name)) for name in ("", "theirs", "DB", "x" * 64, None, 5)),
    ("secrets.1.name", {"secrets": [IN_ENV, {"name": "gone", "env": "A"}]}),
    *(
        ("secrets.0.env", given(env=name))
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


def test_what_is_wrong_is_named_and_stores_nothing(
    client: APIClient, submit: Submit, owner: User, db_secret: Secret
) -> None:
    create_secret(owner=make_user(), name="theirs", value="hunter3")
    artifact = str(store_script(owner=owner, script="a;b\n").id)

    def send(call: Any, path: str, body: dict[str, Any]) -> Any:
        # Not by the client's own encoder, which refuses halves of characters.
        text = json.dumps(body).replace('"OWN"', json.dumps(artifact))
        return call(f"{API}/{path}", text, content_type="application/json")

    job = submit()
    for field, bad in BAD:
        for response in (send(client.post, "jobs", job_body(**bad)), send(client.patch, f"jobs/{job['id']}", bad)):
            assert response.status_code == 400, (bad, response.content)
            assert response.json()["errors"][0]["field"] == field, (bad, response.json())
    assert (Job.objects.count(), VersionSecret.objects.count()) == (1, 0)
    assert job_of(job).current_version == JobVersion.objects.get()


def test_an_edit_of_one_half_is_held_against_the_other(
    client: APIClient, submit: Submit, owner: User, db_secret: Secret
) -> None:
    artifact = str(store_script(owner=owner, script="a;b\n").id)
    job = submit(secrets=[IN_ENV, IN_FILE])
    for body in ({"env": {"DB_PASSWORD": "x"}}, {"inputs": [{"path": "tls/key.pem", "artifact": artifact}]}):
        assert client.patch(f"{API}/jobs/{job['id']}", body, format="json").status_code == 400
    Secret.objects.all().delete()
    assert patch(client, job, name="renamed")["secrets"] == SHOWN, "what is gone keeps nobody from an edit"


def test_a_claim_gives_the_values_of_the_moment(submit: Submit, db_secret: Secret) -> None:
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
def test_a_worker_over_http_is_given_them_also_when_an_answer_was_lost(submit: Submit, db_secret: Secret) -> None:
    Queue.objects.get_or_create(name="default")  # tests that commit leave nothing behind, nor what migrations made
    job = submit(secrets=[IN_ENV])
    worker = join()
    worker.place(execution_of(job["id"]))
    for value in ("hunter2", "hunter3"):
        response = worker.say("claim", held=[], wait_seconds=0)
        assert response["Cache-Control"] == "no-store"
        (shown,) = response.json()["executions"]
        assert shown["secrets"] == [
            {"name": "db", "value": value, "env": "DB_PASSWORD", "path": None, "problem": ""},
        ]
        rotate_secret(db_secret.id, value="hunter3")


def damage(secret: Secret) -> None:
    secret.sealed = bytes(secret.sealed)[:-1] + b"\0\0"
    secret.save()


def swap(secret: Secret) -> None:
    """As if somebody who writes to the database had another's secret given to their own job."""
    theirs = create_secret(owner=make_user(), name="db", value="of somebody else")
    Secret.objects.filter(id=secret.id).update(sealed=theirs.sealed)


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
def test_what_cannot_be_given_is_said_and_nothing_else_is_given(
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
def test_a_run_without_its_secret_ends_and_says_why(submit: Submit, client: APIClient, db_secret: Secret) -> None:
    Queue.objects.get_or_create(name="default")
    job = submit(secrets=[IN_ENV])
    db_secret.delete()
    worker = join()
    execution: Execution = worker.place(execution_of(job["id"]))
    (shown,) = worker.ask()["executions"]
    (given,) = shown["secrets"]
    ended = worker.tell(execution, "complete", reason="secret_unavailable", error=given["problem"])
    assert ended.status_code == 200, ended.content
    told = client.get(f"{API}/executions/{execution.id}").json()
    assert (told["status"], told["reason"]) == ("failed", "secret_unavailable")
    assert Attempt.objects.get().error == "The secret db does not exist any more."


def test_a_run_is_given_only_so_much(submit: Submit, client: APIClient, owner: User, db_secret: Secret) -> None:
    count = conf.MAX_SECRET_BYTES_A_RUN // conf.MAX_SECRET_BYTES
    large = create_secret(owner=owner, name="large", value="x" * conf.MAX_SECRET_BYTES)
    grants = [{"name": "large", "env": f"A{n}"} for n in range(count)]
    job = submit(secrets=grants)
    response = client.post(f"{API}/jobs", job_body(secrets=[*grants, IN_ENV]), format="json")
    assert (response.status_code, response.json()["errors"][0]["field"]) == (400, "secrets")
    assert [each.problem for each in claim(job).opened_secrets()] == [""] * count
    rotate_secret(large.id, value="tiny")
    grown = submit(secrets=[*grants, IN_ENV])
    rotate_secret(large.id, value="x" * conf.MAX_SECRET_BYTES)
    given = claim(grown).opened_secrets()
    assert {each.value for each in given} == {""}
    assert "bytes together" in given[0].problem


def test_files_must_fit_on_the_disk_that_was_asked_for(submit: Submit, client: APIClient, owner: User) -> None:
    create_secret(owner=owner, name="tls", value="k" * 4096)
    program = store_script(owner=owner, script=f"echo {randomness.token_hex(8)}")
    # A page is left, which one file fills; a variable needs no room.
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


def test_a_worker_of_a_release_that_knew_no_secrets_is_not_given_what_needs_them(
    submit: Submit, db_secret: Secret
) -> None:
    """It would run the program without, and nobody would know."""
    make_worker(name="old", capabilities=["bash", "inputs"])
    execution, other = execution_of(submit(secrets=[IN_ENV])["id"]), execution_of(submit()["id"])
    place_ready_executions(limit=1)
    assert hold_of(other), "it hides nothing that can run"
    told = explain_execution(execution.id)
    (gate,) = (gate for gate in told.gates if gate.name == "capability")
    assert (gate.open, gate.words) == (False, "0 of 1 workers offer bash, secrets.")
    new = make_worker(name="new", capabilities=["bash", "secrets"])
    place_ready_executions()
    assert hold_of(execution).worker_id == new.worker_id
