"""Lines are found by words and substrings, in any alphabet, once each, by those who may see them, newest first."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from jobs import sql
from jobs.log_query import Mode, parse_query
from jobs.models import Execution, Job
from jobs.services import log_search
from jobs.services.log_search import FoundLines, LogSearch, Position, search_logs
from tests.factories import make_job, make_user
from tests.integration.services.log_writing import end_long_ago, index_all, running, write, written_by

pytestmark = pytest.mark.django_db

ENOUGH = 30.0


@pytest.fixture
def job() -> Job:
    return make_job(name="nightly")


def search(
    user: User, text: str, *, mode: Mode = Mode.SUBSTRING, limit: int = 50, after: Position | None = None, **given: Any
) -> FoundLines:
    wanted = LogSearch(parse_query(text, mode), **given)
    return search_logs(user, wanted, limit=limit, after=after, within_seconds=ENOUGH)


def found(user: User, text: str, **given: Any) -> list[str]:
    return [line.line for line in search(user, text, **given).lines]


def test_a_line_says_where_it_comes_from(job: Job) -> None:
    at = datetime.now(UTC).replace(microsecond=0)
    hold = running(job)
    write(hold, "starting\n", at=at - timedelta(seconds=9))
    write(hold, "Disk FULL on /dev/sda1\n", first=1, stream="stderr", at=at)
    index_all()
    answer = search(job.owner, "disk full")
    (line,) = answer.lines
    assert (line.execution_id, line.job_id, line.job_name) == (hold.execution_id, job.id, "nightly")
    assert (line.attempt, line.stream, line.sequence, line.at) == (1, "stderr", 1, at)
    assert (line.line, line.matches) == ("Disk FULL on /dev/sda1", [(0, 9)])
    assert (answer.complete, answer.following) == (True, None)
    assert answer.indexed_to is not None


def test_words_are_whole_and_on_one_line(job: Job) -> None:
    written_by(job, "job failed: no disk\njobs failed\nfailed\njob was cancelled, not failed\n")
    assert found(job.owner, "failed job", mode=Mode.WORDS) == [
        "job was cancelled, not failed",
        "job failed: no disk",
    ]
    assert found(job.owner, "failed job -cancelled", mode=Mode.WORDS) == ["job failed: no disk"]
    assert found(job.owner, '"job failed"', mode=Mode.WORDS) == ["job failed: no disk"]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("Ошибка: ДИСК переполнен", "диск"),
        ("磁盘空间不足,请检查", "空间不"),
        ("Die Straße ist gesperrt", "STRASSE"),
        ("İstanbul", "i̇stanbul"),
        ("100% of a_b\\c", "100% OF A_B\\C"),
        ("\x1b[31;1mERROR\x1b[0m: red", "error"),
        ("<script>alert('marker')</script>", "<SCRIPT>ALERT"),
        ("abc\u202egnp.exe\u202c", "abc\u202egnp"),
        ("---===---", "-=="),
    ],
)
@pytest.mark.parametrize("by", ["walking", "index"])
def test_any_text_is_found_either_way(
    job: Job, monkeypatch: pytest.MonkeyPatch, line: str, wanted: str, by: str
) -> None:
    if by == "index":
        use_index_at_once(monkeypatch)
    hold = running(job)
    write(hold, *(f"filler {number}\n" for number in range(5)), f"{line}\n")
    index_all()
    assert found(job.owner, wanted) == [line]
    assert found(job.owner, wanted + "~") == []


def use_index_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a walk of one segment, however well it goes."""
    monkeypatch.setattr(log_search, "WALK_SEGMENTS", 1)
    monkeypatch.setattr(log_search, "WALKS_BEFORE_INDEX", 0)
    monkeypatch.setattr(log_search, "COMMON_ENOUGH", -1)


def test_whatever_bytes_are_around_it_a_marker_is_found(job: Job) -> None:
    hold = running(job)
    pieces = [b"\0\0marker-nul\0\xff\xfe\n", b"\xd0", b"\xbfmarker-half\n", b"y" * 65536, b"marker-long", b"z" * 65536]
    write(hold, *pieces)
    end_long_ago(hold)
    index_all()
    assert [line.line.count("marker") for line in search(job.owner, "marker-").lines] == [1, 1, 1]
    (long,) = search(job.owner, "yyymarker-longzzz").lines
    assert (len(long.line), long.sequence) == (500, 3)


def test_only_what_may_be_seen_is_found(job: Job) -> None:
    hold, other = written_by(job, "secret plan\n"), make_user()
    staff, owner = make_user(is_staff=True), job.owner
    assert found(owner, "secret plan") == ["secret plan"]
    assert found(other, "secret plan") == found(other, "secret plan", owner_id=owner.pk) == []
    assert found(other, "secret plan", job_id=job.id) == []
    assert found(staff, "secret plan") == found(staff, "secret plan", owner_id=owner.pk) == ["secret plan"]
    assert found(staff, "secret plan", owner_id=other.pk) == []
    end_long_ago(hold)
    Execution.objects.filter(id=hold.execution_id).delete()
    assert found(owner, "secret plan") == found(staff, "secret plan") == []


def test_filters(job: Job) -> None:
    now = datetime.now(UTC)
    hold = running(job)
    write(hold, "marker one\n", at=now - timedelta(hours=2))
    write(hold, "marker two\n", first=1, at=now - timedelta(hours=1))
    write(hold, "marker three\n", first=2, stream="stderr", at=now)
    index_all()
    written_by(make_job(owner=job.owner), "marker four\n")
    assert found(job.owner, "marker", job_id=job.id) == ["marker three", "marker two", "marker one"]
    assert found(job.owner, "marker", stream="stderr") == ["marker three"]
    assert found(job.owner, "marker", since=now - timedelta(minutes=90), until=now - timedelta(minutes=30)) == [
        "marker two"
    ]
    assert found(job.owner, "marker", since=datetime.min.replace(tzinfo=UTC)) == [
        *("marker four", "marker three", "marker two", "marker one")
    ]
    assert found(job.owner, "marker", until=now - timedelta(days=40)) == []


@pytest.mark.parametrize("by", ["walking", "index"])
def test_pages_repeat_nothing_and_leave_nothing_out(job: Job, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    if by == "index":
        use_index_at_once(monkeypatch)
        monkeypatch.setattr(log_search, "FOUND_AT_ONCE", 2)
    expected = list[str]()
    for run in range(4):
        lines = [f"marker {run} {number} {'x' * 300}" for number in range(60)]
        written_by(job, "".join(f"{line}\nfiller\n" for line in lines))
        expected = lines[::-1] + expected
    pages, after = list[str](), None
    while True:
        answer = search(job.owner, "marker", limit=7, after=after)
        pages += [line.line for line in answer.lines]
        assert answer.complete
        after = answer.following
        if after is None:
            break
        written_by(job, "marker of a later run\n")
    assert pages == expected


def test_a_search_whose_time_is_up_says_where_to_go_on(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_search, "WALK_SEGMENTS", 1)
    monkeypatch.setattr(log_search, "MOST_WALKED_AT_ONCE", 1)
    for text in ("===old\n", "filler\n", "filler\n"):
        written_by(job, text)
    answers, after = list[FoundLines](), None
    while not answers or after is not None:
        wanted = LogSearch(parse_query("===", Mode.SUBSTRING))
        answers.append(search_logs(job.owner, wanted, limit=5, after=after, within_seconds=0))
        after = answers[-1].following
    assert [(len(each.lines), each.complete) for each in answers] == [(0, False), (0, False), (1, False), (0, True)]


def test_a_search_stops_between_two_segments_when_its_time_is_up(job: Job) -> None:
    for number in range(4):
        written_by(job, f"marker {number}\n")
    pages, after = list[list[str]](), None
    while not pages or after is not None:
        wanted = LogSearch(parse_query("marker", Mode.SUBSTRING))
        answer = search_logs(job.owner, wanted, limit=50, after=after, within_seconds=0)
        pages.append([line.line for line in answer.lines])
        after = answer.following
    assert pages[:4] == [["marker 3"], ["marker 2"], ["marker 1"], ["marker 0"]]


def test_a_window_in_the_past_is_not_reached_by_walking_through_what_came_later(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "CLOCKS_DIFFER", timedelta(0))
    monkeypatch.setattr(log_search, "WALK_SEGMENTS", 1)
    monkeypatch.setattr(log_search, "MOST_WALKED_AT_ONCE", 1)
    written_by(job, "marker before\n")
    until = datetime.now(UTC)
    for _ in range(3):
        written_by(job, "marker after\n")
    wanted = LogSearch(parse_query("marker", Mode.SUBSTRING), until=until)
    answer = search_logs(job.owner, wanted, limit=50, within_seconds=0)
    assert [line.line for line in answer.lines] == ["marker before"]


def test_what_is_too_common_for_the_index_is_walked(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("marker\n", "filler\n", "filler\n"):
        written_by(job, text)
    use_index_at_once(monkeypatch)
    monkeypatch.setattr(log_search, "MOST_WALKED_AT_ONCE", 1)
    fetch = sql.fetch

    def too_slow(name: str, parameters: dict[str, Any], into: type[Any]) -> list[Any]:
        if name == "find_segments":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_sleep(10)")
        return fetch(name, parameters, into)

    monkeypatch.setattr(sql, "fetch", too_slow)
    monkeypatch.setattr(log_search, "INDEX_SECONDS", 0.001)
    first = search_logs(job.owner, LogSearch(parse_query("marker", Mode.SUBSTRING)), limit=5, within_seconds=0)
    assert first.following is not None
    answer = search(job.owner, "marker", limit=1, after=first.following)
    assert [line.line for line in answer.lines] == ["marker"]
    assert answer.following is not None
    assert answer.following.walking


def test_a_position_from_anywhere_is_harmless(job: Job) -> None:
    hold = written_by(job, "marker\n")
    for day in (date.min, date.max):
        assert search(job.owner, "marker", after=Position(day, hold.execution_id, 0, 0, 0, 0)).following is None
