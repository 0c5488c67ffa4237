from __future__ import annotations

from pathlib import Path

import pytest

from scheduler_project.localstack.commands.logs import FollowedLog, show_logs
from scheduler_project.localstack.console import Console, read_last_lines
from scheduler_project.localstack.errors import StackError
from scheduler_project.localstack.layout import Layout


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(var=tmp_path)
    layout.logs.mkdir()
    layout.log("web").write_text("one\ntwo\n[three]\n")
    layout.log("postgres").write_text("ready\n")
    return layout


def test_single_process_has_no_prefix(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    show_logs(layout, Console(), process="web", lines=2, follow=False)

    assert capsys.readouterr().out == "two\n[three]\n"


def test_lines_of_several_processes_are_prefixed(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    show_logs(layout, Console(), process=None, lines=1, follow=False)

    assert capsys.readouterr().out == "postgres | ready\nweb      | [three]\n"


def test_unknown_process_lists_the_known_ones(layout: Layout) -> None:
    with pytest.raises(StackError, match="no process 'wep'; there are: postgres, web"):
        show_logs(layout, Console(), process="wep", lines=1, follow=False)


def test_missing_logs_are_reported(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="no logs yet"):
        show_logs(Layout(var=tmp_path), Console(), process=None, lines=1, follow=False)


def test_following_survives_rotation(tmp_path: Path) -> None:
    path = tmp_path / "web.log"
    path.write_text("")
    log = FollowedLog(path, "", path.open())
    with path.open("a") as writer:
        writer.write("first\nhalf")
    assert log.new_lines() == ["first"]

    with path.open("a") as writer:
        writer.write(" a line\n")
    path.rename(tmp_path / "web.log.1")
    path.write_text("second\n")

    assert log.new_lines() == ["half a line", "second"]
    log.file.close()


def test_invalid_utf8_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xff\xfe\nend\n")

    assert read_last_lines(tmp_path / "log", 1) == ["end"]
    assert read_last_lines(tmp_path / "none", 1) == []


def test_token_is_not_wrapped_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")

    Console().fields({"API token": "x" * 60})

    assert "x" * 60 in capsys.readouterr().out


def test_error_prints_the_end_of_its_log_and_the_message(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    Console().print_error(StackError("It [broke]: fix it.", log=layout.log("web")))

    shown = capsys.readouterr()
    assert shown.out == ""
    assert "  | [three]\npunctual: It [broke]: fix it.\n" in shown.err
    assert str(layout.log("web")) in shown.err
