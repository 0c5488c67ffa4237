from __future__ import annotations

from pathlib import Path

import pytest

from scheduler_project.embedded.console import Console, last_lines
from scheduler_project.embedded.layout import Layout
from scheduler_project.embedded.logs import Followed, show_logs
from scheduler_project.embedded.problems import StackProblem


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(var=tmp_path)
    layout.logs.mkdir()
    layout.log("web").write_text("one\ntwo\n[three]\n")
    layout.log("postgres").write_text("ready\n")
    return layout


def test_one_process_is_shown_as_it_wrote(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    show_logs(layout, Console(), process="web", lines=2, follow=False)

    assert capsys.readouterr().out == "two\n[three]\n"


def test_all_processes_are_told_apart(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    show_logs(layout, Console(), process=None, lines=1, follow=False)

    assert capsys.readouterr().out == "postgres | ready\nweb      | [three]\n"


def test_an_unknown_process_is_answered_with_the_known_ones(layout: Layout) -> None:
    with pytest.raises(StackProblem, match="no process 'wep'; there are: postgres, web"):
        show_logs(layout, Console(), process="wep", lines=1, follow=False)


def test_without_any_log_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(StackProblem, match="no logs yet"):
        show_logs(Layout(var=tmp_path), Console(), process=None, lines=1, follow=False)


def test_following_survives_rotation(tmp_path: Path) -> None:
    path = tmp_path / "web.log"
    path.write_text("")
    log = Followed(path, "", path.open())
    with path.open("a") as writer:
        writer.write("first\nhalf")
    assert log.new_lines() == ["first"]

    with path.open("a") as writer:
        writer.write(" a line\n")
    path.rename(tmp_path / "web.log.1")
    path.write_text("second\n")

    assert log.new_lines() == ["half a line", "second"]
    log.file.close()


def test_bytes_that_are_no_text_do_not_stop_it(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xff\xfe\nend\n")

    assert last_lines(tmp_path / "log", 1) == ["end"]
    assert last_lines(tmp_path / "none", 1) == []


def test_a_token_is_printed_whole_however_narrow_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")

    Console().fields({"API token": "x" * 60})

    assert "x" * 60 in capsys.readouterr().out


def test_a_problem_shows_the_end_of_its_log_and_the_sentence(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    Console().problem(StackProblem("It [broke]: mend it.", log=layout.log("web")))

    shown = capsys.readouterr()
    assert shown.out == ""
    assert "  | [three]\npunctual: It [broke]: mend it.\n" in shown.err
    assert str(layout.log("web")) in shown.err
