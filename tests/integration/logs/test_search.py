"""Log search finds visible lines by words and substrings in any alphabet, once each, newest first."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from jobs.db import sql
from jobs.logs import search as search_module
from jobs.logs.query import SearchMode, parse_query
from jobs.logs.search import FoundLines, LogSearch, SearchPosition, search_logs
from jobs.models import Execution, Job
from tests.support.factories import make_job, make_user
from tests.support.log_writing import end_long_ago, index_all, running, write, written_by

pytestmark = pytest.mark.django_db

TIME_LIMIT_SECONDS = 30.0


@pytest.fixture
def job() -> Job:
    return make_job(name="nightly")


def search(
    user: User,
    text: str,
    *,
    mode: SearchMode = SearchMode.SUBSTRING,
    limit: int = 50,
    after: SearchPosition | None = None,
    **filters: Any,
) -> FoundLines:
    wanted = LogSearch(parse_query(text, mode), **filters)
    return search_logs(user, wanted, limit=limit, after=after, within_seconds=TIME_LIMIT_SECONDS)


def found(user: User, text: str, **filters: Any) -> list[str]:
    return [line.line for line in search(user, text, **filters).lines]


def test_found_line_has_its_origin(job: Job) -> None:
    at = datetime.now(UTC).replace(microsecond=0)
    fence = running(job)
    write(fence, "starting\n", at=at - timedelta(seconds=9))
    write(fence, "Disk FULL on /dev/sda1\n", first=1, stream="stderr", at=at)
    index_all()
    answer = search(job.owner, "disk full")
    (line,) = answer.lines
    assert (line.execution_id, line.job_id, line.job_name) == (fence.execution_id, job.id, "nightly")
    assert (line.attempt, line.stream, line.sequence, line.at) == (1, "stderr", 1, at)
    assert (line.line, line.matches) == ("Disk FULL on /dev/sda1", [(0, 9)])
    assert (answer.complete, answer.next_position) == (True, None)
    assert answer.indexed_to is not None


def test_words_match_whole_words_on_one_line(job: Job) -> None:
    written_by(job, "job failed: no disk\njobs failed\nfailed\njob was cancelled, not failed\n")
    assert found(job.owner, "failed job", mode=SearchMode.WORDS) == [
        "job was cancelled, not failed",
        "job failed: no disk",
    ]
    assert found(job.owner, "failed job -cancelled", mode=SearchMode.WORDS) == ["job failed: no disk"]
    assert found(job.owner, '"job failed"', mode=SearchMode.WORDS) == ["job failed: no disk"]


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
@pytest.mark.parametrize("by", ["scan", "index"])
def test_scan_and_index_find_any_text(
    job: Job, monkeypatch: pytest.MonkeyPatch, line: str, wanted: str, by: str
) -> None:
    if by == "index":
        use_index_at_once(monkeypatch)
    fence = running(job)
    write(fence, *(f"filler {number}\n" for number in range(5)), f"{line}\n")
    index_all()
    assert found(job.owner, wanted) == [line]
    assert found(job.owner, wanted + "~") == []


def use_index_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the index after scanning one segment."""
    monkeypatch.setattr(search_module, "FIRST_SCAN_SEGMENTS", 1)
    monkeypatch.setattr(search_module, "SCANS_BEFORE_INDEX", 0)
    monkeypatch.setattr(search_module, "COMMON_MATCH_RATIO", -1)


def test_marker_between_arbitrary_bytes_is_found(job: Job) -> None:
    fence = running(job)
    pieces = [b"\0\0marker-nul\0\xff\xfe\n", b"\xd0", b"\xbfmarker-half\n", b"y" * 65536, b"marker-long", b"z" * 65536]
    write(fence, *pieces)
    end_long_ago(fence)
    index_all()
    assert [line.line.count("marker") for line in search(job.owner, "marker-").lines] == [1, 1, 1]
    (long,) = search(job.owner, "yyymarker-longzzz").lines
    assert (len(long.line), long.sequence) == (500, 3)


def test_only_visible_lines_are_found(job: Job) -> None:
    fence, other = written_by(job, "secret plan\n"), make_user()
    staff, owner = make_user(is_staff=True), job.owner
    assert found(owner, "secret plan") == ["secret plan"]
    assert found(other, "secret plan") == found(other, "secret plan", owner_id=owner.pk) == []
    assert found(other, "secret plan", job_id=job.id) == []
    assert found(staff, "secret plan") == found(staff, "secret plan", owner_id=owner.pk) == ["secret plan"]
    assert found(staff, "secret plan", owner_id=other.pk) == []
    end_long_ago(fence)
    Execution.objects.filter(id=fence.execution_id).delete()
    assert found(owner, "secret plan") == found(staff, "secret plan") == []


def test_filters(job: Job) -> None:
    now = datetime.now(UTC)
    fence = running(job)
    write(fence, "marker one\n", at=now - timedelta(hours=2))
    write(fence, "marker two\n", first=1, at=now - timedelta(hours=1))
    write(fence, "marker three\n", first=2, stream="stderr", at=now)
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


@pytest.mark.parametrize("by", ["scan", "index"])
def test_pages_repeat_no_line_and_miss_none(job: Job, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    if by == "index":
        use_index_at_once(monkeypatch)
        monkeypatch.setattr(search_module, "INDEX_BATCH_SEGMENTS", 2)
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
        after = answer.next_position
        if after is None:
            break
        written_by(job, "marker of a later run\n")
    assert pages == expected


def test_search_out_of_time_returns_the_next_position(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "FIRST_SCAN_SEGMENTS", 1)
    monkeypatch.setattr(search_module, "MAX_SCAN_SEGMENTS", 1)
    for text in ("===old\n", "filler\n", "filler\n"):
        written_by(job, text)
    answers, after = list[FoundLines](), None
    while not answers or after is not None:
        wanted = LogSearch(parse_query("===", SearchMode.SUBSTRING))
        answers.append(search_logs(job.owner, wanted, limit=5, after=after, within_seconds=0))
        after = answers[-1].next_position
    assert [(len(each.lines), each.complete) for each in answers] == [(0, False), (0, False), (1, False), (0, True)]


def test_search_out_of_time_stops_between_segments(job: Job) -> None:
    for number in range(4):
        written_by(job, f"marker {number}\n")
    pages, after = list[list[str]](), None
    while not pages or after is not None:
        wanted = LogSearch(parse_query("marker", SearchMode.SUBSTRING))
        answer = search_logs(job.owner, wanted, limit=50, after=after, within_seconds=0)
        pages.append([line.line for line in answer.lines])
        after = answer.next_position
    assert pages[:4] == [["marker 3"], ["marker 2"], ["marker 1"], ["marker 0"]]


def test_search_of_a_past_range_skips_newer_executions(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "MAX_CLOCK_SKEW", timedelta(0))
    monkeypatch.setattr(search_module, "FIRST_SCAN_SEGMENTS", 1)
    monkeypatch.setattr(search_module, "MAX_SCAN_SEGMENTS", 1)
    written_by(job, "marker before\n")
    until = datetime.now(UTC)
    for _ in range(3):
        written_by(job, "marker after\n")
    wanted = LogSearch(parse_query("marker", SearchMode.SUBSTRING), until=until)
    answer = search_logs(job.owner, wanted, limit=50, within_seconds=0)
    assert [line.line for line in answer.lines] == ["marker before"]


def test_term_too_common_for_the_index_is_scanned(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("marker\n", "filler\n", "filler\n"):
        written_by(job, text)
    use_index_at_once(monkeypatch)
    monkeypatch.setattr(search_module, "MAX_SCAN_SEGMENTS", 1)
    fetch = sql.fetch

    def too_slow(name: str, parameters: dict[str, Any], into: type[Any]) -> list[Any]:
        if name == "search_segments":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_sleep(10)")
        return fetch(name, parameters, into)

    monkeypatch.setattr(sql, "fetch", too_slow)
    monkeypatch.setattr(search_module, "INDEX_TIMEOUT_SECONDS", 0.001)
    first = search_logs(job.owner, LogSearch(parse_query("marker", SearchMode.SUBSTRING)), limit=5, within_seconds=0)
    assert first.next_position is not None
    answer = search(job.owner, "marker", limit=1, after=first.next_position)
    assert [line.line for line in answer.lines] == ["marker"]
    assert answer.next_position is not None
    assert answer.next_position.scan_only


def test_arbitrary_position_is_harmless(job: Job) -> None:
    fence = written_by(job, "marker\n")
    for day in (date.min, date.max):
        after = SearchPosition(day, fence.execution_id, 0, 0, 0, 0)
        assert search(job.owner, "marker", after=after).next_position is None
