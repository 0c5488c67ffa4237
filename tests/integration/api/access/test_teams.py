"""Teams: management by staff, and what members may do with shared jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from jobs.access.teams import create_team, edit_team
from jobs.api.resources.executions import logs
from jobs.db import keyset
from jobs.db.waiting import Steps
from jobs.domain import limits
from jobs.logs import store as log_store
from jobs.logs.store import Page
from jobs.models import AuditEntry, Execution, Job, Membership, Team
from tests.integration.api.conftest import API, client_of, job_body
from tests.support.factories import make_execution, make_job, make_user

Submit = Callable[..., dict[str, Any]]


@pytest.fixture
def mate(db: None) -> User:
    return make_user(username="mate")


@pytest.fixture
def team(owner: User, mate: User) -> Team:
    return create_team(name="payments", members=[owner.username, mate.username])


def names(client: APIClient, path: str) -> list[str]:
    answer = client.get(f"{API}/{path}")
    assert answer.status_code == 200, answer.content
    return [row.get("name") or row["job_name"] for row in answer.json()["results"]]


def test_staff_creates_edits_and_deletes_team(staff: APIClient, owner: User, mate: User) -> None:
    created = staff.post(f"{API}/teams", {"name": "payments", "members": [owner.username]}, format="json")
    assert (created.status_code, created.json()["members"]) == (201, [owner.username])
    address = f"{API}/teams/{created.json()['id']}"
    assert created["Location"] == address
    edited = staff.patch(
        address, {"members": [owner.username, "mate"]}, format="json", HTTP_IF_MATCH=staff.get(address)["ETag"]
    )
    assert edited.json()["members"] == sorted([owner.username, "mate"])
    assert staff.patch(address, {"name": "money"}, format="json", HTTP_IF_MATCH='"old"').status_code == 412
    renamed = staff.patch(address, {"name": "money"}, format="json")
    assert (renamed.json()["name"], len(renamed.json()["members"])) == ("money", 2)
    assert staff.delete(address).status_code == 204
    assert staff.get(address).status_code == 404
    entries = AuditEntry.objects.filter(object_type="team").order_by("id")
    assert [entry.action for entry in entries] == ["team.created", "team.edited", "team.edited", "team.deleted"]
    assert entries[1].after["members"] == sorted([owner.username, "mate"])


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"name": "Not Allowed"}, 400, "name"),
        ({"name": ""}, 400, "name"),
        ({"name": "a\0"}, 400, "name"),
        ({"name": "a", "members": ["nobody-of-this-name"]}, 400, "members.0"),
        ({"name": "a", "members": "all"}, 400, "members"),
        ({"name": "a", "colour": "red"}, 400, "colour"),
        ({"name": "a", "members": ["x"] * (limits.MAX_MEMBERS_PER_TEAM + 1)}, 400, "members"),
    ],
)
def test_invalid_team_is_rejected(staff: APIClient, body: dict[str, Any], status: int, field: str) -> None:
    answer = staff.post(f"{API}/teams", body, format="json")
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (status, field)
    assert not Team.objects.exists()


def test_name_is_unique(staff: APIClient, team: Team) -> None:
    assert staff.post(f"{API}/teams", {"name": "payments"}, format="json").status_code == 409
    other = create_team(name="other", members=[])
    assert staff.patch(f"{API}/teams/{other.id}", {"name": "payments"}, format="json").status_code == 409


def test_number_of_teams_per_user_is_bounded(staff: APIClient, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_TEAMS_PER_USER", 2)
    for name in ("one", "two"):
        create_team(name=name, members=[owner.username])
    answer = staff.post(f"{API}/teams", {"name": "three", "members": [owner.username]}, format="json")
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "members")
    assert not Team.objects.filter(name="three").exists()


def test_members_see_only_their_teams(client: APIClient, stranger: APIClient, team: Team) -> None:
    assert names(client, "teams") == ["payments"]
    assert names(stranger, "teams") == []
    assert client.get(f"{API}/teams/{team.id}").json()["members"] == sorted(
        Membership.objects.filter(team=team).values_list("user__username", flat=True)
    )


def test_job_is_shared_with_team_and_unshared(client: APIClient, submit: Submit, team: Team, mate: User) -> None:
    mate_client = client_of(mate)
    job = submit(name="report", team="payments", schedules=[{"cron": "@daily"}])
    assert job["team"] == "payments"
    job_data = mate_client.get(f"{API}/jobs/{job['id']}")
    assert (job_data.status_code, job_data.json()["owner"], job_data.json()["team"]) == (200, job["owner"], "payments")
    assert client.patch(f"{API}/jobs/{job['id']}", {"team": None}, format="json").json()["team"] is None
    assert mate_client.get(f"{API}/jobs/{job['id']}").status_code == 404
    changed = AuditEntry.objects.filter(action="job.edited").get()
    assert (changed.before["team"], changed.after["team"]) == ("payments", None)


def test_job_is_shared_only_with_teams_of_its_owner(
    client: APIClient, staff: APIClient, submit: Submit, team: Team, bucket: None
) -> None:
    create_team(name="others", members=[])
    job = submit()
    for name in ("others", "nowhere"):
        pages = []
        for answer in (
            client.post(f"{API}/jobs", job_body(team=name), format="json"),
            client.post(f"{API}/jobs/bulk", {"jobs": [job_body(), job_body(team=name)]}, format="json"),
            client.patch(f"{API}/jobs/{job['id']}", {"team": name}, format="json"),
            staff.patch(f"{API}/jobs/{job['id']}", {"team": name}, format="json"),
        ):
            assert answer.status_code == 400, answer.content
            pages.append(answer.json()["errors"][0])
        assert [each["field"] for each in pages] == ["team", "jobs.1.team", "team", "team"]
        assert {each["message"].replace(name, "…") for each in pages} == {
            "The job's owner is not a member of a team '…'; ask staff to be added to it."
        }
    assert Job.objects.count() == 1


def test_member_operates_shared_job_and_owner_sees_it_in_audit(
    client: APIClient, submit: Submit, team: Team, mate: User
) -> None:
    mate_client = client_of(mate)
    job = submit(team="payments", schedules=[{"cron": "@daily"}])
    address = f"{API}/jobs/{job['id']}"
    assert mate_client.post(f"{address}/pause", {"note": "not now"}, format="json").json()["status"] == "paused"
    assert mate_client.post(f"{address}/resume").json()["status"] == "scheduled"
    execution = mate_client.post(f"{address}/execute").json()
    assert mate_client.put(f"{API}/executions/{execution['id']}/cancel").json()["status"] == "cancelled"
    done = client.get(f"{API}/audit?object_type=job").json()["results"]
    assert {(entry["action"], entry["actor"]) for entry in done} >= {
        ("job.paused", "mate"), ("job.resumed", "mate"), ("job.executed", "mate")
    }  # fmt: skip


def test_member_cannot_edit_shared_job(client: APIClient, submit: Submit, team: Team, mate: User) -> None:
    mate_client = client_of(mate)
    job = submit(team="payments", schedules=[{"cron": "@daily"}])
    address = f"{API}/jobs/{job['id']}"
    for refused in (
        mate_client.patch(address, {"script": "env"}, format="json"),
        mate_client.patch(address, {"team": None}, format="json"),
        mate_client.delete(address),
        mate_client.put(f"{address}/cancel"),
    ):
        assert (refused.status_code, refused.json()["type"]) == (403, "urn:punctual:owners-only")
    # Nor can members use parts of a shared job in their own jobs.
    own_body = job_body(dependencies=[{"job": job["id"]}])
    assert mate_client.post(f"{API}/jobs", own_body, format="json").status_code == 400
    assert (
        mate_client.post(f"{API}/jobs", job_body(script=None, artifact=job["artifact"]), format="json").status_code
        == 400
    )
    assert mate_client.get(f"{API}/artifacts/{job['artifact']}").status_code == 404
    assert client.get(address).json()["version"] == job["version"]


def test_removed_member_loses_access(client: APIClient, submit: Submit, owner: User, team: Team, mate: User) -> None:
    job = submit(team="payments")
    edit_team(team.id, members=["mate"])
    # The owner keeps the shared job and may edit its other fields.
    assert client.patch(f"{API}/jobs/{job['id']}", {"priority": 1}, format="json").json()["team"] == "payments"
    assert names(client, "jobs?team=payments") == ["job"]
    edit_team(team.id, members=[])
    assert client_of(mate).get(f"{API}/jobs/{job['id']}").status_code == 404
    assert names(client_of(mate), "jobs?team=payments") == []


def test_member_removed_while_waiting_for_log_gets_404(
    owner: User, team: Team, mate: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution = make_execution(job=make_job(owner=owner))
    Job.objects.update(team=team)
    log = f"{API}/executions/{execution.id}/logs?format=json&wait=1"
    assert client_of(mate).get(log.replace("wait=1", "wait=0")).status_code == 200

    def await_page(*args: Any, **wanted: Any) -> Steps[Page]:
        edit_team(team.id, members=[owner.username])
        return log_store.await_page(*args, **wanted | {"seconds": 0})

    monkeypatch.setattr(logs, "await_page", await_page)
    assert client_of(mate).get(log).status_code == 404


def test_jobs_of_deleted_team_are_unshared(
    client: APIClient, staff: APIClient, submit: Submit, team: Team, mate: User
) -> None:
    job = submit(team="payments")
    assert staff.delete(f"{API}/teams/{team.id}").status_code == 204
    assert client.get(f"{API}/jobs/{job['id']}").json()["team"] is None
    assert client_of(mate).get(f"{API}/jobs/{job['id']}").status_code == 404
    assert AuditEntry.objects.get(action="team.deleted").before["jobs"] == 1


@pytest.fixture
def shared(owner: User, mate: User, team: Team) -> list[Job]:
    """Create a shared and an unshared job of the owner and of the mate, and one of a stranger."""
    jobs = [make_job(owner=user, name=name) for user, name in (
        (owner, "b"), (owner, "own"), (mate, "a"), (mate, "private"), (make_user(), "strange")
    )]  # fmt: skip
    Job.objects.filter(name__in=["a", "b"]).update(team=team)
    for job in jobs:
        make_execution(job=job)
    return jobs


@pytest.mark.parametrize("address", ["jobs", "jobs?status=failed", "executions", "executions?ordering=ended_at"])
def test_page_reads_teams_once(owner: User, team: Team, mate: User, address: str) -> None:
    make_execution(job=make_job(owner=owner))
    Job.objects.update(team=team)
    with CaptureQueriesContext(connection) as queries:
        assert client_of(mate).get(f"{API}/{address}").status_code == 200
    assert sum('FROM "jobs_membership"' in each["sql"] for each in queries) == 1


def test_lists_contain_shared_jobs_once(client: APIClient, owner: User, shared: list[Job]) -> None:
    create_team(name="second", members=[owner.username])
    for path, expected in {
        "jobs": ["a", "own", "b"],
        "jobs?ordering=created": ["b", "own", "a"],
        "jobs?ordering=name": ["a", "b", "own"],
        "jobs?ordering=-name": ["own", "b", "a"],
        "jobs?team=payments": ["a", "b"],
        "jobs?team=payments&ordering=-name": ["b", "a"],
        "jobs?team=second": [],
        "jobs?team=nowhere": [],
        "jobs?owner=mate": ["a"],
        f"jobs?owner={owner.username}": ["own", "b"],
        f"jobs?owner={owner.username}&team=payments": ["b"],
        "jobs?owner=mate&team=payments": ["a"],
        "jobs?name=a": ["a"],
        "jobs?name=private": [],
        "jobs?search=a": ["a"],
        "jobs?status=waiting": ["a", "own", "b"],
        "executions": ["a", "own", "b"],
        "executions?ordering=created": ["b", "own", "a"],
        "executions?team=payments": ["a", "b"],
        "executions?team=payments&owner=mate": ["a"],
        "executions?team=second": [],
        "executions?owner=mate": ["a"],
        f"executions?job_id={shared[2].id}": ["a"],
        f"executions?job_id={shared[3].id}": [],
    }.items():
        assert names(client, path) == expected, path


@pytest.mark.parametrize("extra", ["", "&status=paused", "&ordering=name", "&ordering=next_fire", "&search=report"])
def test_next_page_does_not_reveal_users(
    owner: User, mate: User, team: Team, monkeypatch: pytest.MonkeyPatch, extra: str
) -> None:
    """Lists look the same for existing users and teams without shared jobs and for unknown names."""
    monkeypatch.setattr(keyset, "STEP_ROWS", 4)
    monkeypatch.setattr(keyset, "PAGE_BUDGET_SECONDS", 0)
    make_user(username="somebody")
    create_team(name="theirs", members=["somebody"])
    for number in range(9):
        make_job(owner=mate if number % 2 else owner, name=f"report {number}")
        make_job(owner=mate, name=f"report of mine {number}")
    Job.objects.filter(name__startswith="report ").update(team=team)
    for pair in (("owner=somebody", "owner=nobody"), ("team=theirs", "team=nowhere")):
        known, unknown = (client_of(mate).get(f"{API}/jobs?limit=1{extra}&{name}").json() for name in pair)
        assert known["results"] == unknown["results"] == []
        assert (known["next"] is None) == (unknown["next"] is None), (pair, known, unknown)


def test_pages_of_shared_jobs_are_complete_and_disjoint(client: APIClient, mate: User, shared: list[Job]) -> None:
    for number in range(6):
        make_job(owner=mate, name=f"extra {number}")
    Job.objects.filter(name__startswith="extra").update(team=Team.objects.get())
    for path in ("jobs?limit=2", "jobs?limit=2&ordering=name", "executions?limit=1", "jobs?limit=3&team=payments"):
        following, seen = f"{API}/{path}", []
        while following:
            page = client.get(following).json()
            seen += [row["id"] for row in page["results"]]
            following = page["next"]
        whole = client.get(f"{API}/{path.replace('limit=', 'limit=10')}").json()["results"]
        assert seen == [row["id"] for row in whole]
        assert len(seen) > 2


def test_list_query_count_is_independent_of_teams(client: APIClient, owner: User, shared: list[Job]) -> None:
    def statements() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert len(names(client, "jobs")) == 3
        return len(queries)

    statements()  # the first requests also fill caches
    before = statements()
    for number in range(5):
        create_team(name=f"team-{number}", members=[owner.username])
    assert statements() == before


def test_members_read_logs_and_outputs_of_shared_job(client: APIClient, mate: User, shared: list[Job]) -> None:
    execution = Execution.objects.get(job__name="a")
    for part in ("", "/attempts", "/events", "/explain", "/logs", "/outputs"):
        assert client.get(f"{API}/executions/{execution.id}{part}").status_code == 200, part
    private = Execution.objects.get(job__name="private")
    assert client.get(f"{API}/executions/{private.id}/logs").status_code == 404
    assert client.delete(f"{API}/executions/{execution.id}/outputs").status_code == 403
    assert client.get(f"{API}/audit/firings?from=2026-01-01T00:00:00Z&job_id={shared[2].id}").status_code == 200
    assert client.get(f"{API}/audit/firings?from=2026-01-01T00:00:00Z&job_id={shared[3].id}").status_code == 404
    assert client.get(f"{API}/logs/search?q=hello&job_id={shared[2].id}").status_code == 200
    assert client.get(f"{API}/logs/search?q=hello&job_id={shared[3].id}").status_code == 404


def test_admin_creates_edits_and_deletes_teams(owner: User, mate: User) -> None:
    admin = Client()
    admin.force_login(make_user(is_staff=True, is_superuser=True))
    new = "/admin/jobs/team/add/"
    assert admin.get(new).status_code == 200
    assert admin.post(new, {"name": "payments", "people": [owner.pk]}).status_code == 302
    team = Team.objects.get()
    page = f"/admin/jobs/team/{team.id}/change/"
    assert owner.username in admin.get(page).content.decode()
    assert admin.post(page, {"name": "payments", "people": [owner.pk, mate.pk]}).status_code == 302
    assert set(team.members.all()) == {owner, mate}
    create_team(name="taken", members=[])
    assert "already exists" in admin.post(page, {"name": "taken"}).content.decode()
    assert ">2<" in admin.get("/admin/jobs/team/").content.decode()
    assert admin.post(f"/admin/jobs/team/{team.id}/delete/", {"post": "yes"}).status_code == 302
    assert [entry.action for entry in AuditEntry.objects.filter(object_id=str(team.id)).order_by("id")] == [
        "team.created", "team.edited", "team.deleted"
    ]  # fmt: skip
