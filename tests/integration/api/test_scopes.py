"""Every address says which scope it needs, in one table, and a token of a smaller one is refused."""

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

from jobs.api import permissions
from jobs.api.permissions import NEEDED, OPEN, PREFIX, scopes_needed
from jobs.models import LADDER, TokenScope
from jobs.services.tokens import covers
from scheduler_project.urls import urlpatterns
from tests.factories import make_job, make_user
from tests.integration.api.conftest import API, client_of
from tests.integration.api.rest_workers import worker_client

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


def test_what_is_in_the_table_is_there_and_nothing_goes_around_it() -> None:
    assert len(CHANGES) > 20, "the listing works"
    declared = {(PREFIX + route, method) for route, methods in NEEDED.items() for method in methods}
    assert {pair for pair in declared if pair[1] not in SAFE_METHODS} == set(CHANGES)
    assert {route for route, _ in declared} <= {route for route, _ in VIEWS}
    for route, view in VIEWS:
        guards = set(view.permission_classes)
        assert permissions.WithinScope in guards or guards == {AllowAny}, route
        assert guards != {AllowAny} or not any(changed == route for changed, _ in CHANGES), route


@pytest.mark.parametrize("scope", TokenScope.values)
def test_every_change_is_refused_to_smaller_scopes_and_only_to_them(db: None, scope: str) -> None:
    client = client_of(make_user(is_staff=scope == TokenScope.WORKER), TokenScope(scope))
    reached = []
    # The token that gives itself up does so last.
    for route, method in sorted(CHANGES, key=lambda change: change[0].endswith("/self")):
        needed = scopes_needed(route, method)
        assert needed is not None
        answer = client.generic(method, address(route), "{}", content_type="application/json")
        if needed == OPEN or any(covers(TokenScope(scope), each) for each in needed):
            reached.append(route)
            assert answer.status_code != 403 or b"urn:punctual:scope" not in answer.content, route
        else:
            assert (answer.status_code, answer.json()["type"]) == (403, "urn:punctual:scope"), route
            assert (
                answer.json()["detail"] == f"This needs a token of scope {' or '.join(needed)}; this one has {scope}."
            )
    assert reached


def test_to_look_needs_the_scope_read_and_no_worker_has_it(owner: User) -> None:
    reader, (worker, _) = client_of(owner, TokenScope.READ), worker_client()
    for path in ("jobs", "executions", "secrets", "tokens", "usage", "queues"):
        assert reader.get(f"{API}/{path}").status_code == 200, path
        assert reader.head(f"{API}/{path}").status_code == 200, path
        assert worker.get(f"{API}/{path}").status_code == 403, path
    assert reader.get(f"{API}/workers/terms").status_code == 403
    assert worker.get(f"{API}/workers/terms").status_code == 200


def test_the_ladder() -> None:
    order = [[covers(has, needed) for needed in LADDER] for has in LADDER]
    assert order == [[has >= needed for needed in range(4)] for has in range(4)]
    assert not any(covers(TokenScope.WORKER, each) or covers(each, TokenScope.WORKER) for each in LADDER)
    assert covers(TokenScope.WORKER, TokenScope.WORKER)


def test_what_nobody_has_declared_nobody_may(owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions, "NEEDED", {})
    answer = client_of(owner).put(f"{API}/jobs/{make_job(owner=owner).id}/cancel")
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:punctual:scope")


def test_a_method_that_does_not_exist_is_said_to_be_none_where_nobody_logs_in(db: None) -> None:
    assert APIClient().get(f"{API}/login").status_code == 405


def test_a_method_that_does_not_exist_is_said_to_be_none_whatever_the_scope(db: None) -> None:
    user = make_user(is_staff=True)
    for scope in TokenScope:
        assert client_of(user, scope).delete(f"{API}/jobs").status_code == 405
    assert APIClient().delete(f"{API}/jobs").status_code == 401


def test_a_browser_that_logged_in_may_all_that_its_user_may_with_the_csrf_token_of_the_docs(owner: User) -> None:
    browser, mine, other = APIClient(enforce_csrf_checks=True), make_job(owner=owner), make_job(owner=make_user())
    browser.force_login(owner)
    (script,) = re.findall(r'src="([^"]*script=[^"]*)"', browser.get(f"{API}/docs").content.decode())
    started = browser.get(html.unescape(script)).content.decode()
    token = browser.cookies["csrftoken"].value
    assert "X-CSRFTOKEN" in started

    def cancel(job: Any, **headers: str) -> int:
        return browser.put(f"{API}/jobs/{job.id}/cancel", headers=headers).status_code

    assert cancel(mine) == 403
    assert cancel(mine, **{"X-CSRFToken": token}) == 200
    assert cancel(other, **{"X-CSRFToken": token}) == 404
    assert browser.get(f"{API}/tokens/self").status_code == 404
