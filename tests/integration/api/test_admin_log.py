"""The log of an execution in the admin: text and nothing else, for those who may look, also while it grows."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import unescape

import pytest
from django.contrib.auth.models import Permission
from django.contrib.staticfiles import finders
from django.test import Client

from jobs.admin import execution_log
from jobs.models import Attempt, Execution
from jobs.protocol import Chunk, Hold, Report
from jobs.services import transitions
from jobs.services.attempts import finish_attempt
from jobs.services.logs import append_chunks
from jobs.states import Reason
from tests.factories import make_execution, make_user, make_worker, run_on

HOSTILE = b"<script>alert(1)</script>&lt;\x1b[2J\x00\r\n\xff\xe2\x82 \xed\xa0\x80" + "\u202eevil\u2028\x85".encode()


@pytest.fixture
def admin(db: None) -> Client:
    client = Client()
    client.force_login(make_user(is_staff=True, is_superuser=True))
    return client


@pytest.fixture
def hold(db: None) -> Hold:
    return run_on(make_worker(), make_execution())


def write(hold: Hold, *texts: bytes, stream: str = "stdout", first: int = 0) -> None:
    at = datetime(2030, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC)
    append_chunks(hold, [Chunk(number, stream, at, data) for number, data in enumerate(texts, first)])


def address(hold: Hold, query: str = "", *, view: str = "log") -> str:
    return f"/admin/jobs/execution/{hold.execution_id}/{view}/?{query}"


def rows_of(page: str) -> list[list[str]]:
    rows = re.findall(r"<tr class=\"std[^>]*>(.*?)</tr>", page, re.DOTALL)
    return [[unescape(cell) for cell in re.findall(r"<td>(.*?)</td>", row, re.DOTALL)] for row in rows]


def shown(client: Client, hold: Hold, query: str = "") -> str:
    answer = client.get(address(hold, query))
    assert answer.status_code == 200
    return answer.content.decode()


def test_what_was_written_is_shown_as_text_with_its_time_and_stream(admin: Client, hold: Hold) -> None:
    write(hold, b"one\n", HOSTILE)
    write(hold, b"bad\n", stream="stderr", first=2)
    page = shown(admin, hold)
    hostile = "<script>alert(1)</script>&lt;\\x1b[2J\\x00\n\ufffd\ufffd \ufffd\ufffd\ufffd\\u202eevil\\u2028\\x85"
    at = "2030-01-02 03:04:05.678"
    assert rows_of(page) == [[at, "stdout", "one"], [at, "stdout", hostile], [at, "stderr", "bad"]]
    assert "<script>alert" not in page
    assert not [character for character in page if not character.isprintable() and character not in "\n\t"]
    assert page.count('class="stdout open"') == 1, "a line that goes on is marked"
    following = admin.get(address(hold, "attempt=1", view="log_next")).json()
    assert [row["text"] for row in following["rows"]] == ["one", hostile, "bad"]
    assert (following["next"], following["ended"]) == (2, False)


def test_one_stream_and_earlier_parts_are_chosen(admin: Client, hold: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution_log, "PAGE_BYTES", 4)
    write(hold, *(b"o%d\n" % number for number in range(4)))
    write(hold, b"e4\n", stream="stderr", first=4)

    def texts(page: str) -> list[str]:
        return [row[2] for row in rows_of(page)]

    end = shown(admin, hold)
    assert (texts(end), "data-next" in end) == (["o3", "e4"], True)
    (query,) = re.findall(r'href="\?([^"]*before[^"]*)"', end)
    earlier = shown(admin, hold, unescape(query))
    assert (texts(earlier), "data-next" in earlier, "To the end" in earlier) == (["o1", "o2"], False, True)
    assert texts(shown(admin, hold, "stream=stderr")) == ["e4"]
    assert "There is nothing earlier" in shown(admin, hold, "before=0")


def test_states_are_said_in_words(admin: Client, hold: Hold) -> None:
    assert "It has written nothing yet." in shown(admin, hold)
    finish_attempt(hold, Report(Reason.EXIT, exit_code=0, log_truncated=True))
    page = shown(admin, hold)
    assert "It wrote nothing." in page
    assert "data-next" not in page
    assert 'id="log-cut">The log was cut here' in page
    never = make_execution()
    page = admin.get(f"/admin/jobs/execution/{never.id}/log/").content.decode()
    assert "It has written nothing yet." in page
    assert 'id="log-cut" hidden' in page
    assert "download" not in page


def test_attempts_are_chosen_and_linked(admin: Client, hold: Hold) -> None:
    write(hold, b"of the first\n")
    transitions.lose_held({hold.worker_id: None})
    write(run_on(make_worker(), Execution.objects.get(id=hold.execution_id)), b"of the second\n")
    assert [row[2] for row in rows_of(shown(admin, hold))] == ["of the second"]
    first = shown(admin, hold, "attempt=1")
    assert [row[2] for row in rows_of(first)] == ["of the first"]
    assert f"/api/v1/executions/{hold.execution_id}/logs?attempt=1" in first
    assert "The attempt has ended." in first
    assert Attempt.objects.count() == 2
    change = admin.get(f"/admin/jobs/execution/{hold.execution_id}/change/").content.decode()
    assert f'href="/admin/jobs/execution/{hold.execution_id}/log/"' in change


@pytest.mark.parametrize(
    ("query", "status"),
    [("attempt=7", 404), ("attempt=x", 400), ("attempt=-1", 400), ("before=x", 400), ("stream=stdin", 400),
     ("attempt=99999999999999999999", 400)],
)  # fmt: skip
def test_nonsense_is_refused(admin: Client, hold: Hold, query: str, status: int) -> None:
    for view in ("log", "log_next"):
        assert admin.get(address(hold, query, view=view)).status_code == status


def test_only_staff_that_may_view_executions_sees_it(hold: Hold) -> None:
    write(hold, b"word\n")
    may, may_not, ordinary = make_user(is_staff=True), make_user(is_staff=True), make_user()
    may.user_permissions.add(Permission.objects.get(codename="view_execution"))
    for user, status in ((may, 200), (may_not, 403), (ordinary, 302)):
        client = Client()
        client.force_login(user)
        for view in ("log", "log_next"):
            assert client.get(address(hold, view=view)).status_code == status
            assert Client().get(address(hold, view=view)).status_code == 302


def test_the_page_has_no_script_or_style_of_its_own_but_files(admin: Client, hold: Hold) -> None:
    page = shown(admin, hold)
    assert 'src="/static/jobs/execution_log.js"' in page
    for name in ("js", "css"):
        assert finders.find(f"jobs/execution_log.{name}")
    content = page[page.index('id="content-main"') : page.index('id="log-state"')]
    assert not re.search(r"<script|<style|style=|\son\w+=", content)
