"""The log page of the admin: escaped text, for staff only, also while the log grows."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import unescape

import pytest
from django.contrib.staticfiles import finders
from django.test import Client

from jobs.admin import execution_log
from jobs.domain.states import Reason
from jobs.domain.worker_protocol import AttemptFence, Chunk, RunReport
from jobs.execution import transitions
from jobs.execution.attempts import finish_attempt
from jobs.logs.store import append_chunks
from jobs.models import Attempt, Execution
from tests.support.factories import make_execution, make_user, make_worker, run_on

HOSTILE = b"<script>alert(1)</script>&lt;\x1b[2J\x00\r\n\xff\xe2\x82 \xed\xa0\x80" + "\u202eevil\u2028\x85".encode()


@pytest.fixture
def admin(db: None) -> Client:
    client = Client()
    client.force_login(make_user(is_staff=True, is_superuser=True))
    return client


@pytest.fixture
def fence(db: None) -> AttemptFence:
    return run_on(make_worker(), make_execution())


def write(fence: AttemptFence, *texts: bytes, stream: str = "stdout", first: int = 0) -> None:
    at = datetime(2030, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC)
    append_chunks(fence, [Chunk(number, stream, at, data) for number, data in enumerate(texts, first)])


def address(fence: AttemptFence, query: str = "", *, view: str = "log") -> str:
    return f"/admin/jobs/execution/{fence.execution_id}/{view}/?{query}"


def rows_of(page: str) -> list[list[str]]:
    rows = re.findall(r"<tr class=\"std[^>]*>(.*?)</tr>", page, re.DOTALL)
    return [[unescape(cell) for cell in re.findall(r"<td>(.*?)</td>", row, re.DOTALL)] for row in rows]


def show(client: Client, fence: AttemptFence, query: str = "") -> str:
    answer = client.get(address(fence, query))
    assert answer.status_code == 200
    return answer.content.decode()


def test_output_is_shown_as_text_with_time_and_stream(admin: Client, fence: AttemptFence) -> None:
    write(fence, b"one\n", HOSTILE)
    write(fence, b"bad\n", stream="stderr", first=2)
    page = show(admin, fence)
    hostile = "<script>alert(1)</script>&lt;\\x1b[2J\\x00\n\ufffd\ufffd \ufffd\ufffd\ufffd\\u202eevil\\u2028\\x85"
    at = "2030-01-02 03:04:05.678"
    assert rows_of(page) == [[at, "stdout", "one"], [at, "stdout", hostile], [at, "stderr", "bad"]]
    assert "<script>alert" not in page
    assert not [character for character in page if not character.isprintable() and character not in "\n\t"]
    assert page.count('class="stdout open"') == 1, "a continued line is marked"
    following = admin.get(address(fence, "attempt=1", view="log_next")).json()
    assert [row["text"] for row in following["rows"]] == ["one", hostile, "bad"]
    assert (following["next"], following["ended"]) == (2, False)


def test_stream_and_earlier_parts_can_be_selected(
    admin: Client, fence: AttemptFence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution_log, "PAGE_BYTES", 4)
    write(fence, *(b"o%d\n" % number for number in range(4)))
    write(fence, b"e4\n", stream="stderr", first=4)

    def texts(page: str) -> list[str]:
        return [row[2] for row in rows_of(page)]

    end = show(admin, fence)
    assert (texts(end), "data-next" in end) == (["o3", "e4"], True)
    (query,) = re.findall(r'href="\?([^"]*before[^"]*)"', end)
    earlier = show(admin, fence, unescape(query))
    assert (texts(earlier), "data-next" in earlier, "Latest" in earlier) == (["o1", "o2"], False, True)
    assert texts(show(admin, fence, "stream=stderr")) == ["e4"]
    assert "No earlier output." in show(admin, fence, "before=0")


def test_page_describes_state_of_log(admin: Client, fence: AttemptFence) -> None:
    assert "No output yet." in show(admin, fence)
    finish_attempt(fence, RunReport(Reason.EXIT, exit_code=0, log_truncated=True))
    page = show(admin, fence)
    assert "No output." in page
    assert "data-next" not in page
    assert 'id="log-cut">The log is truncated' in page
    never = make_execution()
    page = admin.get(f"/admin/jobs/execution/{never.id}/log/").content.decode()
    assert "No output yet." in page
    assert 'id="log-cut" hidden' in page
    assert "download" not in page


def test_attempts_can_be_selected(admin: Client, fence: AttemptFence) -> None:
    write(fence, b"of the first\n")
    transitions.lose_executions({fence.worker_id: None})
    write(run_on(make_worker(), Execution.objects.get(id=fence.execution_id)), b"of the second\n")
    assert [row[2] for row in rows_of(show(admin, fence))] == ["of the second"]
    first = show(admin, fence, "attempt=1")
    assert [row[2] for row in rows_of(first)] == ["of the first"]
    assert f"/api/v1/executions/{fence.execution_id}/logs?attempt=1" in first
    assert "The attempt has ended." in first
    assert Attempt.objects.count() == 2
    change = admin.get(f"/admin/jobs/execution/{fence.execution_id}/change/").content.decode()
    assert f'href="/admin/jobs/execution/{fence.execution_id}/log/"' in change


@pytest.mark.parametrize(
    ("query", "status"),
    [("attempt=7", 404), ("attempt=x", 400), ("attempt=-1", 400), ("before=x", 400), ("stream=stdin", 400),
     ("attempt=99999999999999999999", 400)],
)  # fmt: skip
def test_invalid_parameters_are_rejected(admin: Client, fence: AttemptFence, query: str, status: int) -> None:
    for view in ("log", "log_next"):
        assert admin.get(address(fence, query, view=view)).status_code == status


def test_only_staff_sees_log_page(fence: AttemptFence) -> None:
    write(fence, b"word\n")
    for user, status in ((make_user(is_staff=True), 200), (make_user(), 302)):
        client = Client()
        client.force_login(user)
        for view in ("log", "log_next"):
            assert client.get(address(fence, view=view)).status_code == status
            assert Client().get(address(fence, view=view)).status_code == 302


def test_page_has_no_inline_script_or_style(admin: Client, fence: AttemptFence) -> None:
    page = show(admin, fence)
    assert 'src="/static/jobs/execution_log.js"' in page
    for name in ("js", "css"):
        assert finders.find(f"jobs/execution_log.{name}")
    content = page[page.index('id="content-main"') : page.index('id="log-state"')]
    assert not re.search(r"<script|<style|style=|\son\w+=", content)
