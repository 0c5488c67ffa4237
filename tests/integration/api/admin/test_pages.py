"""The admin shows every table in a fixed number of queries, and edits only configuration."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from jobs.access.tokens import compute_digest, revoke_token
from jobs.dispatch import placement
from jobs.dispatch.explain import explain_execution
from jobs.execution.attempts import claim_attempt
from jobs.models import ApiToken, Dependency, Execution, Queue, Worker
from jobs.scheduling.calendars import create_calendar
from tests.integration.api.conftest import API
from tests.support.factories import hold_of, make_execution, make_job, make_schedule, make_user, make_worker


@pytest.fixture
def admin(db: None) -> Client:
    client = Client()
    client.force_login(make_user(is_staff=True, is_superuser=True))
    return client


def fill() -> None:
    job = make_job()
    calendar = create_calendar(owner=job.owner, name="holidays", dates=[])
    make_schedule(job=job, calendar=calendar, own_excluded_dates=[])
    Dependency.objects.create(job=make_job(), upstream=job)
    make_worker()
    execution = make_execution(job=job)
    placement.place_ready_executions()
    claim_attempt(hold_of(execution))


@pytest.mark.parametrize("table", ["job", "execution", "worker", "queue", "apitoken", "calendar"])
def test_admin_pages_use_constant_number_of_queries(admin: Client, table: str) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert admin.get(f"/admin/jobs/{table}/").status_code == 200
        return len(queries)

    fill()
    few = count()
    for _ in range(3):
        fill()

    assert count() == few


@pytest.mark.parametrize(("state", "phase"), [("claimed", "held"), ("ready", "ready"), ("succeeded", None)])
def test_executions_are_filtered_by_state_and_its_phase(admin: Client, state: str, phase: str | None) -> None:
    fill()
    make_execution()
    Execution.objects.filter(id=make_execution().id).update(state="succeeded", ended_at=datetime.now(UTC))
    with CaptureQueriesContext(connection) as queries:
        page = admin.get("/admin/jobs/execution/", {"state__exact": state})
    assert [row.state for row in page.context["cl"].result_list] == [state]
    assert any(f"\"phase\" = '{phase}'" in query["sql"] for query in queries) == (phase is not None)


def test_execution_and_job_pages_are_read_only(admin: Client) -> None:
    fill()
    execution = make_execution()
    for address in (f"execution/{execution.id}", f"job/{execution.job_id}"):
        page = admin.get(f"/admin/jobs/{address}/change/")
        assert page.status_code == 200
        assert b'name="_save"' not in page.content
        assert admin.post(f"/admin/jobs/{address}/change/", {"state": "succeeded"}).status_code == 403
        assert admin.post(f"/admin/jobs/{address}/delete/", {"post": "yes"}).status_code == 403
    execution.refresh_from_db()
    assert execution.state == "ready"


def test_progress_is_shown_and_escaped(admin: Client) -> None:
    execution = make_execution()
    sent_body = {"attempt": 0, "percent": 42.5, "message": "<b>far</b>", "at": "2030-01-01T00:00:00+00:00"}
    Execution.objects.filter(id=execution.id).update(progress=sent_body)
    for address in ("execution/", f"execution/{execution.id}/change/"):
        assert b"42.5 % &lt;b&gt;far&lt;/b&gt;" in admin.get(f"/admin/jobs/{address}").content


def test_admin_edits_queue(admin: Client) -> None:
    queue = Queue.objects.get(name="default")
    body = {"pool": "default", "priority": 3, "max_concurrency": "", "aging_seconds": 60, "paused": "on"}

    assert admin.post(f"/admin/jobs/queue/{queue.id}/change/", body).status_code == 302
    queue.refresh_from_db()
    assert (queue.priority, queue.paused) == (3, True)


def test_stale_form_does_not_resume_paused_queue(admin: Client) -> None:
    queue = Queue.objects.get(name="default")
    address = f"/admin/jobs/queue/{queue.id}/change/"
    page = admin.get(address).content.decode()
    hidden = re.findall(r'<input type="hidden" name="(initial-\w+)"(?: value="([^"]*)")?', page)
    assert ("initial-paused", "False") in hidden
    act(admin, "pause", queue)
    body = {"pool": "default", "priority": 3, "max_concurrency": "", "aging_seconds": 60}
    assert admin.post(address, dict(hidden) | body).status_code == 302
    queue.refresh_from_db()
    assert (queue.priority, queue.paused) == (3, True)


def test_rejected_queue_edit_shows_reason(admin: Client) -> None:
    execution, worker = make_execution(), make_worker(name="alpha")
    Execution.objects.filter(id=execution.id).update(pinned_worker_id=worker.worker_id)
    queue = Queue.objects.get(name="default")
    body = {"pool": "other", "priority": 0, "max_concurrency": "", "aging_seconds": 60}
    page = admin.post(f"/admin/jobs/queue/{queue.id}/change/", body, follow=True).content.decode()
    assert "pool: An execution in the queue is pinned to the worker alpha" in page
    queue.refresh_from_db()
    assert queue.pool == "default"


def test_token_is_shown_once_and_works(admin: Client, owner: User) -> None:
    body = {"scope": "admin", "owner": owner.pk, "name": "ci", "expires_at_0": "", "expires_at_1": ""}
    page = admin.post("/admin/jobs/apitoken/add/", body, follow=True)

    data = re.search(rb"pun_[\w-]+", page.content)
    assert data is not None
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {data[0].decode()}")
    assert client.get(f"{API}/jobs").status_code == 200
    token = ApiToken.objects.get(name="ci")
    again = admin.get(f"/admin/jobs/apitoken/{token.id}/change/")
    assert data[0] not in again.content
    assert token.digest.encode() not in again.content


def test_bootstrap_is_idempotent_and_follows_its_secrets(
    db: None, bucket: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bootstrap(password: str, token: str) -> str:
        monkeypatch.setenv("PUNCTUAL_ADMIN_PASSWORD", password)
        monkeypatch.setenv("PUNCTUAL_API_TOKEN", token)
        out = StringIO()
        call_command("bootstrap", admin_user="root", stdout=out)
        return out.getvalue()

    assert "root created" in bootstrap("first-quiet-harbour", "pun_" + "a" * 40)
    assert "root exists" in bootstrap("first-quiet-harbour", "pun_" + "a" * 40)
    assert "replaced" in bootstrap("second-quiet-harbour", "pun_" + "b" * 40)
    admin = User.objects.get(username="root")
    assert (admin.is_superuser, admin.check_password("second-quiet-harbour")) == (True, True)
    assert ApiToken.objects.filter(owner=admin).count() == 1
    revoke_token(ApiToken.objects.get(owner=admin).id)
    assert "API token: revoked" in bootstrap("second-quiet-harbour", "pun_" + "b" * 40)


@pytest.mark.parametrize(
    ("password", "reason"), [("short", "too short"), ("password", "too common"), ("operator-1", "too similar")]
)
def test_bootstrap_rejects_weak_password(
    db: None, bucket: None, monkeypatch: pytest.MonkeyPatch, password: str, reason: str
) -> None:
    monkeypatch.setenv("PUNCTUAL_ADMIN_PASSWORD", password)
    with pytest.raises(CommandError, match=f"PUNCTUAL_ADMIN_PASSWORD is refused: .*{reason}"):
        call_command("bootstrap", admin_user="operator", stdout=StringIO())
    assert not User.objects.filter(username="operator").exists()

    # A new password for an existing administrator is validated, too; the current one stays valid.
    admin = User.objects.create_superuser("operator", password="quiet-harbour-7")
    with pytest.raises(CommandError, match=reason):
        call_command("bootstrap", admin_user="operator", stdout=StringIO())
    admin.set_password(password)
    admin.save()
    call_command("bootstrap", admin_user="operator", stdout=StringIO())


def act(client: Client, action: str, *rows: Execution | Queue | Worker) -> str:
    """Run an admin action on the rows and return the next page."""
    body = {"action": action, ACTION_CHECKBOX_NAME: [str(row.id) for row in rows]}
    return client.post(f"/admin/jobs/{rows[0]._meta.model_name}/", body, follow=True).content.decode()


def test_actions_cancel_retry_redrive_and_dismiss_executions(admin: Client) -> None:
    waiting, failed, dead = (make_execution() for _ in range(3))
    for execution in (failed, dead):
        Execution.objects.filter(id=execution.id).update(
            state="failed", reason="exit", dead_letter="open", ended_at=datetime.now(UTC)
        )
    assert "Cancelled 1 execution." in act(admin, "cancel", waiting)
    assert "Redrove 1 execution." in act(admin, "redrive", failed)
    assert "Dismissed 1 execution." in act(admin, "dismiss", dead)
    assert "Retried 1 execution." in act(admin, "retry", dead)
    assert set(Execution.objects.values_list("retry_of", flat=True)) == {None, failed.id, dead.id}
    for execution, state, letter in ((waiting, "cancelled", None), (failed, "failed", "redriven")):
        execution.refresh_from_db()
        assert (execution.state, execution.dead_letter) == (state, letter)


def test_rejected_row_is_reported_and_does_not_stop_action(admin: Client) -> None:
    ended, waiting = make_execution(), make_execution()
    Execution.objects.filter(id=ended.id).update(state="succeeded", ended_at=datetime.now(UTC))
    page = act(admin, "cancel", ended, waiting)
    assert "has ended already (succeeded)" in page
    assert "Cancelled 1 execution." in page


def test_actions_pause_and_resume_queues(admin: Client) -> None:
    make_worker()
    execution = make_execution()
    queue = Queue.objects.get(name="default")
    assert "Paused 1" in act(admin, "pause", queue)
    assert placement.place_ready_executions().placed == 0
    assert "queue default is paused" in explain_execution(execution.id).words
    assert "Paused 0" in act(admin, "pause", queue)
    assert "Resumed 1" in act(admin, "resume", queue)
    assert placement.place_ready_executions().placed == 1


def test_action_drains_workers_and_moves_waiting_executions(admin: Client) -> None:
    make_worker(name="alpha")
    execution = make_execution()
    placement.place_ready_executions()
    assert "Draining alpha" in act(admin, "drain", Worker.objects.get())
    execution.refresh_from_db()
    assert (Worker.objects.get().status, execution.state) == ("draining", "ready")
    Worker.objects.update(status="lost")
    assert "the selected workers are gone" in act(admin, "drain", Worker.objects.get())
    assert Worker.objects.get().status == "lost"


def test_worker_list_shows_runtimes_and_page_shows_all_capabilities(admin: Client) -> None:
    names = ["untrusted-ok", *(f"language-{number}" for number in range(7))]
    runtimes = dict.fromkeys(names[1:], "3.11.2")
    worker = make_worker(capabilities=names, details={"runtimes": runtimes, "cgroups": "v2"})
    listed = admin.get("/admin/jobs/worker/").content.decode()
    assert "language-0, language-1, language-2, language-3 and 3 more" in listed
    assert "3.11.2" not in listed
    page = admin.get(f"/admin/jobs/worker/{worker.worker_id}/change/").content.decode()
    assert "untrusted-ok, language-0 3.11.2," in page
    make_worker(capabilities=["bash"], details={"runtimes": "nonsense"})
    assert ">bash<" in admin.get("/admin/jobs/worker/").content.decode()


def test_command_issues_worker_token_and_prints_it_once(owner: User) -> None:
    with pytest.raises(CommandError, match="not staff"):
        call_command("create_worker_token", owner=owner.username)
    owner.is_staff = True
    owner.save()
    out = StringIO()
    call_command("create_worker_token", owner=owner.username, name="machine-2", pool="far", days=7, stdout=out)
    token = ApiToken.objects.get(name="machine-2")
    assert (token.scope, token.owner, token.digest) == ("worker", owner, compute_digest(out.getvalue().strip()))
    assert token.expires_at is not None
    wrongs: list[dict[str, Any]] = [{"owner": "nobody"}, {"owner": owner.username, "days": 0}]
    for wrong in wrongs:
        with pytest.raises(CommandError):
            call_command("create_worker_token", **wrong)
