"""Every route has its required scope in one table, which is enforced."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import URLPattern, URLResolver
from rest_framework.permissions import SAFE_METHODS, AllowAny
from rest_framework.test import APIClient

from jobs.access.tokens import scope_covers
from jobs.api.framework import permissions
from jobs.api.framework.permissions import API_PREFIX, PUBLIC, REQUIRED_SCOPES, find_required_scopes
from jobs.models import SCOPE_LADDER, TokenScope
from scheduler_project.urls import urlpatterns
from tests.integration.api.conftest import API, client_of
from tests.support.factories import make_job, make_user
from tests.support.rest_workers import worker_client

NOWHERE = "0198c0de-0000-7000-8000-000000000001"


def views(patterns: list[Any], prefix: str = "") -> Iterator[tuple[str, type[Any]]]:
    for pattern in patterns:
        here = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from views(pattern.url_patterns, here)
        elif isinstance(pattern, URLPattern) and hasattr(pattern.callback, "cls"):
            yield here, pattern.callback.cls


VIEWS = list(views(urlpatterns))
CHANGES = [
    (route, method.upper())
    for route, view in VIEWS
    for method in view.http_method_names
    if hasattr(view, method) and method.upper() not in SAFE_METHODS
]


def address(route: str) -> str:
    return "/" + "/".join(NOWHERE if part.startswith("<uuid:") else part for part in route.split("/"))


def test_scope_table_matches_routes() -> None:
    assert len(CHANGES) > 20, "the listing works"
    declared = {(API_PREFIX + route, method) for route, methods in REQUIRED_SCOPES.items() for method in methods}
    assert {pair for pair in declared if pair[1] not in SAFE_METHODS} == set(CHANGES)
    assert {route for route, _ in declared} <= {route for route, _ in VIEWS}
    for route, view in VIEWS:
        guards = set(view.permission_classes)
        assert permissions.RequiredScopePermission in guards or guards == {AllowAny}, route
        assert guards != {AllowAny} or not any(changed == route for changed, _ in CHANGES), route


@pytest.mark.parametrize("scope", TokenScope.values)
def test_change_is_forbidden_for_smaller_scopes_only(db: None, scope: str) -> None:
    client = client_of(make_user(is_staff=scope == TokenScope.WORKER), TokenScope(scope))
    reached = []
    # The route by which the token revokes itself comes last.
    for route, method in sorted(CHANGES, key=lambda change: change[0].endswith("/self")):
        needed = find_required_scopes(route, method)
        assert needed is not None
        answer = client.generic(method, address(route), "{}", content_type="application/json")
        if needed == PUBLIC or any(scope_covers(TokenScope(scope), each) for each in needed):
            reached.append(route)
            assert answer.status_code != 403 or b"urn:punctual:scope" not in answer.content, route
        else:
            assert (answer.status_code, answer.json()["type"]) == (403, "urn:punctual:scope"), route
            assert (
                answer.json()["detail"] == f"This needs a token of scope {' or '.join(needed)}; this one has {scope}."
            )
    assert reached


def test_reading_needs_read_scope(owner: User) -> None:
    reader, (worker, _) = client_of(owner, TokenScope.READ), worker_client()
    for path in ("jobs", "executions", "secrets", "tokens", "usage", "queues"):
        assert reader.get(f"{API}/{path}").status_code == 200, path
        assert reader.head(f"{API}/{path}").status_code == 200, path
        assert worker.get(f"{API}/{path}").status_code == 403, path
    assert reader.get(f"{API}/workers/terms").status_code == 403
    assert worker.get(f"{API}/workers/terms").status_code == 200


def test_scope_ladder() -> None:
    order = [[scope_covers(has, needed) for needed in SCOPE_LADDER] for has in SCOPE_LADDER]
    assert order == [[has >= needed for needed in range(4)] for has in range(4)]
    assert not any(
        scope_covers(TokenScope.WORKER, each) or scope_covers(each, TokenScope.WORKER) for each in SCOPE_LADDER
    )
    assert scope_covers(TokenScope.WORKER, TokenScope.WORKER)


def test_undeclared_method_is_forbidden(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions, "REQUIRED_SCOPES", {})
    answer = client_of(owner).put(f"{API}/jobs/{make_job(owner=owner).id}/cancel")
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:punctual:scope")


def test_unknown_method_of_public_route_gets_405(db: None) -> None:
    assert APIClient().get(f"{API}/login").status_code == 405


def test_unknown_method_gets_405_for_every_scope(db: None) -> None:
    user = make_user(is_staff=True)
    for scope in TokenScope:
        assert client_of(user, scope).delete(f"{API}/jobs").status_code == 405
    assert APIClient().delete(f"{API}/jobs").status_code == 401


def test_session_has_all_scopes_with_csrf_token_of_docs(owner: User) -> None:
    browser, own, other = APIClient(enforce_csrf_checks=True), make_job(owner=owner), make_job(owner=make_user())
    browser.force_login(owner)
    (script,) = re.findall(r'src="([^"]*script=[^"]*)"', browser.get(f"{API}/docs").content.decode())
    started = browser.get(html.unescape(script)).content.decode()
    token = browser.cookies["csrftoken"].value
    assert "X-CSRFTOKEN" in started

    def cancel(job: Any, **headers: str) -> int:
        return browser.put(f"{API}/jobs/{job.id}/cancel", headers=headers).status_code

    assert cancel(own) == 403
    assert cancel(own, **{"X-CSRFToken": token}) == 200
    assert cancel(other, **{"X-CSRFToken": token}) == 404
    assert browser.get(f"{API}/tokens/self").status_code == 404
