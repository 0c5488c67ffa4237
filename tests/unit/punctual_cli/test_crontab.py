"""Conversion of crontab lines to jobs, with warnings about what a sandbox cannot do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from punctual_cli.importers.crontab import find_machine_timezone, find_warnings, read_crontab, split_command
from punctual_cli.importers.import_result import ImportedJob
from punctual_client.errors import UsageError


def jobs(text: str, *, system: bool = False) -> tuple[ImportedJob, ...]:
    imports = read_crontab(text.encode(), "tab", system=system, timezone="Europe/Paris")
    assert imports.skipped == ()
    return imports.jobs


def the_job(text: str, *, system: bool = False) -> dict[str, Any]:
    (imported,) = jobs(text, system=system)
    return dict(imported.job)


def test_crontab_line_becomes_a_job_with_the_behaviour_of_cron() -> None:
    assert the_job("*/5 8-18 * * mon-fri /usr/bin/true --now\n") == {
        "name": "true",
        "runtime": "sh",
        "script": "/usr/bin/true --now\n",
        "schedules": [{"cron": "*/5 8-18 * * mon-fri", "timezone": "Europe/Paris", "catch_up": "none"}],
        "timeout": "1d",
        "max_concurrency": None,
    }


def test_settings_count_from_their_line_on() -> None:
    first, second = jobs(
        'SHELL=/bin/bash\nA = "b c"\n0 1 * * * one\nCRON_TZ=Asia/Tokyo\nRANDOM_DELAY=5\nA=x\nMAILTO=me\n0 1 * * * two\n'
    )
    assert (first.job["runtime"], first.job["env"], first.warnings) == ("bash", {"A": "b c"}, ())
    assert second.job["env"] == {"A": "x"}
    assert second.job["schedules"] == [
        {"cron": "0 1 * * *", "timezone": "Asia/Tokyo", "catch_up": "none", "jitter_seconds": 300}
    ]
    assert second.warnings == ()


def test_settings_are_described_once_where_they_are_set() -> None:
    text = "MAILTO=me\n@daily a\n@daily b\nMAILTO=me\n@daily c\nMAILTO=you\nMAILTO=\nPGPASSWORD=hunter2\n@daily d\n"
    imports = read_crontab(text.encode(), "tab", system=False, timezone="UTC")
    assert [each.warnings for each in imports.jobs] == [()] * 4
    assert [(note.where, note.message.partition(" the output")[0]) for note in imports.notes[:2]] == [
        ("tab:1", "cron mailed"), ("tab:6", "cron mailed"),
    ]  # fmt: skip
    (password,) = imports.notes[2:]
    assert password.where == "tab:8"
    assert password.message.startswith("PGPASSWORD contains a password")
    assert "punctual secrets set" in password.message
    assert "hunter2" not in str(imports.notes)


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("PGPASSWORD=hunter2 pg_dump db", "PGPASSWORD"), ("mysqldump -phunter2 db", "-p of mysqldump"),
        ("curl -u user:hunter2 https://a.example", "-u of curl"), ("x --password=hunter2", "--password"),
        ("mail me%token=hunter2", "token"),
    ],
)  # fmt: skip
def test_a_password_in_a_line_is_reported_but_not_shown(line: str, place: str) -> None:
    (imported,) = jobs(f"@daily {line}\n")
    assert f"It contains a password ({place})" in imported.warnings[0]
    assert "punctual secrets set" in imported.warnings[0]
    assert "hunter2" not in str(imported.warnings)
    (left,) = read_crontab(f"@reboot {line}".encode(), "tab", system=False, timezone="UTC").skipped
    assert "hunter2" not in str(left)


@pytest.mark.parametrize(
    ("written", "cron"),
    [
        ("@daily", "@daily"), ("@Midnight", "@midnight"), ("@every_minute", "* * * * *"), ("-0 1 * * *", "0 1 * * *"),
        ("0~30 ~ 5~ * *", "H(0-30) H H(5-31) * *"), ("0\t1  *  *\t*", "0 1 * * *"),
    ],
)  # fmt: skip
def test_cron_notation_is_translated(written: str, cron: str) -> None:
    assert the_job(f"{written} echo x\n")["schedules"][0]["cron"] == cron


@pytest.mark.parametrize(
    ("written", "command", "stdin"),
    [
        ("date +\\%F", "date +%F", None),
        ("cat%a%b", "cat", "a\nb\n"),
        ("cat \\%%a\\%%", "cat %", "a%\n\n"),
        ("cat%", "cat", "\n"),
    ],
)
def test_a_percent_sign_starts_standard_input(written: str, command: str, stdin: str | None) -> None:
    assert split_command(written) == (command, stdin)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("# Back up the shop\n0 1 * * * x", "Back up the shop"),
        ("# Back up the shop\n\n0 1 * * * /opt/x.sh", "x"),
        ("# m h  dom mon dow   command\n0 1 * * * /opt/x.sh", "x"),
        ("# -----\n0 1 * * * /opt/x.sh", "x"),
        ("#0 4 * * * /opt/old.sh\n0 1 * * * /opt/x.sh", "x"),
        ("#@daily /opt/old.sh\n0 1 * * * /opt/x.sh", "x"),
        ("0 1 * * * cd /srv/app && A=b nice -n 5 python3 -u manage.py clear", "manage"),
        ("0 1 * * * flock -n /run/lock backup", "lock"),
        ("0 1 * * * [ -x 5 ]", "cron job"),
    ],
)
def test_job_is_named_after_its_comment_or_its_program(text: str, name: str) -> None:
    assert the_job(text)["name"] == name


def test_a_name_is_printable() -> None:
    assert the_job("@daily b\x1b[2Jc\n")["name"] == "b [2Jc"


def test_a_table_of_the_system_names_users() -> None:
    (imported,) = jobs("17 * * * * root run-parts x\n", system=True)
    assert imported.job["script"] == "run-parts x\n"
    assert "It ran as root" in imported.warnings[0]
    (imported,) = jobs("17 * * * * root run-parts x\n")
    assert "did you mean --system?" in imported.warnings[0]


def test_a_file_of_windows_is_read_as_any_other() -> None:
    (imported,) = jobs("\ufeff0 4 * * * cat%a%b\r\n")
    assert (imported.job["script"], imported.job["stdin"]) == ("cat\n", "a\nb\n")


@pytest.mark.parametrize(
    ("line", "system", "reason"),
    [
        ("@reboot x", False, "not a time"),
        ("@fortnightly x", False, "unknown"),
        ("0 1 * * *", False, "five fields"),
        ("nonsense", False, "five fields"),
        ("0 1 * * * %", False, "no command"),
        ("0 1 * * * root", True, "user column"),
    ],
)
def test_an_invalid_line_is_skipped_with_its_number(line: str, system: bool, reason: str) -> None:
    imports = read_crontab(f"\n{line}\n@daily root echo\n".encode(), "tab", system=system, timezone="UTC")
    (left,) = imports.skipped
    assert (left.where, len(imports.jobs)) == ("tab:2", 1)
    assert reason in left.reason


@pytest.mark.parametrize(
    ("command", "sentences"),
    [
        ("/usr/bin/true > /dev/null 2>&1", []),
        ("/opt/x.sh >> /var/log/x 2>&1", ["does not see /opt/x.sh, /var/log/x:"]),
        ("~/bin/x; $HOME/y; ls /home/me", ["does not see ~/bin/x, $HOME/y, /home/me:"]),
        ("./run.sh", ["cron ran it in a home directory"]),
        ("touch /tmp/x", ["/tmp is private"]),
        ("/usr/bin/curl -s https://a.example/b/c | git push", ["curl, git may need a network"]),
        ("sudo systemctl restart x", ["sudo, systemctl acts on the machine itself"]),
    ],
)
def test_command_that_a_sandbox_forbids_gets_a_warning(command: str, sentences: list[str]) -> None:
    told = find_warnings(command)
    assert len(told) == len(sentences)
    assert all(sentence in warning for sentence, warning in zip(sentences, told, strict=True))


def test_settings_that_are_not_imported_are_reported() -> None:
    text = "SHELL=/bin/zsh\nHOME=/x\nPUNCTUAL_URL=y\nMAILTO=\n@daily a\n"
    imports = read_crontab(text.encode(), "tab", system=False, timezone="UTC")
    assert "env" not in imports.jobs[0].job
    assert [(note.where, note.message) for note in imports.notes] == [
        ("tab:1", "The following lines ran in zsh; they are imported for sh."),
        ("tab:2", "HOME is not imported."),
        ("tab:3", "PUNCTUAL_URL is not imported."),
    ]
    with pytest.raises(UsageError, match="tab:1: 'Mars/Base' is not a time zone"):
        jobs("CRON_TZ=Mars/Base\n")


@pytest.mark.parametrize("content", [b"\xff", b"a\0b", b"x" * (1024 * 1024 + 1)])
def test_invalid_text_is_refused(content: bytes) -> None:
    with pytest.raises(UsageError, match=r"^tab"):
        read_crontab(content, "tab", system=False, timezone="UTC")


def test_the_zone_is_that_of_the_machine(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--tz"):
        find_machine_timezone({}, tmp_path)
    (tmp_path / "timezone").write_text("Asia/Tokyo\n")
    assert find_machine_timezone({}, tmp_path) == "Asia/Tokyo"
    (tmp_path / "localtime").symlink_to("/usr/share/zoneinfo/Europe/Rome")
    assert find_machine_timezone({}, tmp_path) == "Europe/Rome"
    assert find_machine_timezone({"TZ": ":America/New_York"}, tmp_path) == "America/New_York"
