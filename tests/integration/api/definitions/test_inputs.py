"""Standard input and input files of jobs: own artifacts, safe paths, kept while a version uses them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from jobs.dispatch.explain import explain_execution
from jobs.dispatch.placement import place_ready_executions
from jobs.domain import limits
from jobs.models import Artifact, Execution, Job, JobVersion, Queue, VersionInput
from jobs.storage import s3
from jobs.storage.artifacts import announce_artifact
from tests.integration.api.conftest import API, execution_of, job_body, job_of
from tests.support.factories import hold_of, make_user, make_worker
from tests.support.rest_workers import join
from tests.support.submitting import store_script

pytestmark = pytest.mark.django_db
Submit = Callable[..., dict[str, Any]]


@pytest.fixture
def data(owner: User, bucket: None) -> str:
    """Create an artifact of the owner."""
    return str(store_script(owner=owner, script="a;b\n").id)


def input_artifacts(job: dict[str, Any]) -> dict[str | None, str]:
    version = job_of(job).current_version
    assert version is not None
    return {each.path: each.artifact.sha256 for each in version.inputs.select_related("artifact")}


def patch(client: APIClient, job: dict[str, Any], **body: Any) -> dict[str, Any]:
    response = client.patch(f"{API}/jobs/{job['id']}", body, format="json")
    assert response.status_code == 200, response.content
    values: dict[str, Any] = response.json()
    return values


def test_stdin_and_input_files_belong_to_the_version(submit: Submit, client: APIClient, data: str) -> None:
    inputs = [{"path": "z.csv", "artifact": data}, {"path": "data/a.csv", "artifact": data}]
    job = submit(stdin="read me", inputs=inputs)
    assert job["inputs"] == sorted(inputs, key=lambda each: each["path"])
    stored = Artifact.objects.get(id=job["stdin_artifact"])
    assert b"".join(s3.read_artifact(stored.sha256)) == b"read me"
    assert set(input_artifacts(job)) == {None, "z.csv", "data/a.csv"}
    assert client.get(f"{API}/jobs/{job['id']}").json()["inputs"] == job["inputs"]
    named = submit(stdin_artifact=data)
    assert (named["stdin_artifact"], named["inputs"]) == (data, [])
    assert submit()["stdin_artifact"] is None


def test_edit_creates_version_and_keeps_old_one(submit: Submit, client: APIClient, data: str) -> None:
    job = submit(stdin="one", inputs=[{"path": "a", "artifact": data}])
    before = input_artifacts(job)
    values = patch(client, job, stdin="two")
    assert (values["version"], values["inputs"]) == (2, job["inputs"])
    assert values["stdin_artifact"] != job["stdin_artifact"]
    first = JobVersion.objects.get(job_id=job["id"], number=1)
    assert {each.path: each.artifact.sha256 for each in first.inputs.all()} == before
    values = patch(client, job, inputs=[{"path": "b", "artifact": data}], name="other")
    assert (values["version"], values["inputs"]) == (3, [{"path": "b", "artifact": data}])
    assert patch(client, job, stdin="two")["version"] == 3, "an equal value creates no version"
    assert patch(client, job, name="another")["version"] == 3
    values = patch(client, job, stdin=None, inputs=[])
    assert (values["version"], values["stdin_artifact"], values["inputs"]) == (4, None, [])
    assert patch(client, job, stdin_artifact=data)["stdin_artifact"] == data
    assert patch(client, job, stdin_artifact=None)["stdin_artifact"] is None


FILE = {"path": "a"}
BAD: list[tuple[str, dict[str, Any]]] = [
    ("stdin", {"stdin": ""}),
    ("stdin", {"stdin": 5}),
    ("stdin", {"stdin": "a\x00"}),
    ("stdin", {"stdin": "x" * (limits.MAX_STDIN_BYTES + 1)}),
    ("stdin", {"stdin": "x", "stdin_artifact": "OWN"}),
    ("stdin_artifact", {"stdin_artifact": "nonsense"}),
    ("stdin_artifact", {"stdin_artifact": "FOREIGN"}),
    ("stdin_artifact", {"stdin_artifact": "UNSENT"}),
    ("stdin_artifact", {"stdin_artifact": str(uuid4())}),
    ("inputs", {"inputs": {}}),
    ("inputs", {"inputs": [{"path": f"f{n}", "artifact": "OWN"} for n in range(limits.MAX_INPUTS + 1)]}),
    ("inputs.0.artifact", {"inputs": [FILE]}),
    ("inputs.0.path", {"inputs": [{"artifact": "OWN"}]}),
    ("inputs.0.mode", {"inputs": [FILE | {"artifact": "OWN", "mode": "x"}]}),
    ("inputs.1.artifact", {"inputs": [FILE | {"artifact": "OWN"}, {"path": "b", "artifact": "FOREIGN"}]}),
    ("inputs.0.artifact", {"inputs": [FILE | {"artifact": "UNSENT"}]}),
    ("inputs.1.path", {"inputs": [FILE | {"artifact": "OWN"}, FILE | {"artifact": "OWN"}]}),
    ("inputs.0.path", {"inputs": [{"path": "a/b", "artifact": "OWN"}, FILE | {"artifact": "OWN"}]}),
    *(
        ("inputs.0.path", {"inputs": [{"path": path, "artifact": "OWN"}]})
        for path in (
            *("", "/etc/passwd", "..", "a/../b", "./a", "a//b", "a/", ".", "a\\b", "a\nb", "a\x00", "\ud800", 5),
            *("x" * 1025, "é" * 200, "out", "out/a", "program", "program.py", "program/a", None),
        )
    ),
]


def test_invalid_input_names_field_and_stores_nothing(
    client: APIClient, submit: Submit, owner: User, data: str
) -> None:
    ids = {
        "OWN": data,
        "FOREIGN": str(store_script(owner=make_user(), script="a;b\n").id),
        "UNSENT": str(announce_artifact(owner=owner, sha256="f" * 64, size=5).artifact.id),
    }

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: filled(each) for name, each in value.items()}
        return [filled(each) for each in value] if isinstance(value, list) else ids.get(value, value)

    def send(call: Any, path: str, body: dict[str, Any]) -> Any:
        # Encoded here, because the test client's encoder rejects lone surrogates.
        return call(f"{API}/{path}", json.dumps(body), content_type="application/json")

    job = submit()
    for field, changes in BAD:
        bad = filled(changes)
        for response in (send(client.post, "jobs", job_body(**bad)), send(client.patch, f"jobs/{job['id']}", bad)):
            assert response.status_code == 400, (changes, response.content)
            assert response.json()["errors"][0]["field"] == field, (changes, response.json())
    assert (Job.objects.count(), VersionInput.objects.count()) == (1, 0)
    assert job_of(job).current_version == JobVersion.objects.get()


def test_program_and_files_must_fit_in_requested_disk(
    client: APIClient, submit: Submit, owner: User, data: str
) -> None:
    Artifact.objects.filter(id=data).update(size=1024 * 1024 - 4096)
    body = job_body(inputs=[{"path": "a", "artifact": data}], requirements={"disk_mb": 1})
    assert client.post(f"{API}/jobs", body, format="json").status_code == 201
    Artifact.objects.filter(id=data).update(size=1024 * 1024 - 4095)
    for refused in (
        client.post(f"{API}/jobs", body, format="json"),
        client.patch(
            f"{API}/jobs/{submit(inputs=body['inputs'])['id']}", {"requirements": {"disk_mb": 1}}, format="json"
        ),
    ):
        assert refused.status_code == 400
        error = refused.json()["errors"][0]
        assert (error["field"], "2 MB" in error["message"]) == ("requirements.disk_mb", True)


@pytest.mark.django_db(transaction=True)
def test_worker_gets_urls_of_its_runs_files_only(submit: Submit, data: str, owner: User) -> None:
    Queue.objects.get_or_create(name="default")  # tests that commit truncate all tables, including rows of migrations
    store_script(owner=owner, script="of no job")
    job = submit(script="cat", stdin="read me", inputs=[{"path": "data/a.csv", "artifact": data}])
    worker = join()
    execution: Execution = worker.place(execution_of(job["id"]))
    for answer in (worker.claim(), worker.claim()):  # the second call as after a lost response
        (claim,) = answer["executions"]
        files = {file["path"]: httpx.get(file["url"]).content for file in claim["inputs"]}
        assert files == {None: b"read me", "data/a.csv": b"a;b\n"}
        assert httpx.get(claim["program"]["url"]).content == b"cat"
    assert worker.claim(execution)["executions"] == []


@pytest.mark.parametrize("input_artifacts", ["stdin", "inputs"])
def test_worker_without_input_support_gets_no_job_with_inputs(submit: Submit, data: str, input_artifacts: str) -> None:
    """Otherwise it would silently run the program without them."""
    make_worker(name="old", capabilities=["bash"])
    value: Any = {"stdin": "x", "inputs": [{"path": "a", "artifact": data}]}[input_artifacts]
    execution, other = execution_of(submit(**{input_artifacts: value})["id"]), execution_of(submit()["id"])
    place_ready_executions(limit=1)
    assert hold_of(other), "it does not hide runnable executions"
    explanation = explain_execution(execution.id)
    (gate,) = (gate for gate in explanation.gates if gate.name == "capability")
    assert (gate.open, gate.words) == (False, "0 of 1 workers offer bash, inputs.")
    new = make_worker(name="new", capabilities=["bash", "inputs"])
    place_ready_executions()
    assert hold_of(execution).worker_id == new.worker_id


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("size", "seconds"), [(5 * 10**9, 300 + 3 * 5000), (5 * 10**12, 12 * 3600)])
def test_urls_of_larger_downloads_are_valid_longer(submit: Submit, data: str, size: int, seconds: int) -> None:
    Queue.objects.get_or_create(name="default")
    job = submit(script="cat", inputs=[{"path": name, "artifact": data} for name in "abc"])
    Artifact.objects.filter(id=data).update(size=size)
    worker = join()
    worker.place(execution_of(job["id"]))
    (claim,) = worker.claim()["executions"]
    for file in (claim["program"], *claim["inputs"]):
        assert int(httpx.URL(file["url"]).params["X-Amz-Expires"]) == seconds
