"""Passwords in a command are found and never shown."""

from __future__ import annotations

import pytest

from punctual_cli.importers.password_detection import find_passwords, redact_passwords


@pytest.mark.parametrize(
    ("command", "places", "shown"),
    [
        ("PGPASSWORD=hunter2 pg_dump db", ["PGPASSWORD"], "PGPASSWORD=… pg_dump db"),
        ("A=1 DB_PASS='hunter 2' x", ["DB_PASS"], "A=1 DB_PASS=… x"),
        ("docker run -e API_KEY=hunter2 x", ["API_KEY"], "docker run -e API_KEY=… x"),
        ("/usr/bin/mysqldump -u me -phunter2 db", ["-p of mysqldump"], "/usr/bin/mysqldump -u me -p… db"),
        ("sshpass -p hunter2 ssh h", ["-p of sshpass"], "sshpass -p … ssh h"),
        ("curl -su me:hunter2 https://h/x", ["-u of curl"], "curl -su me:… https://h/x"),
        ("curl 'https://h/?a=1&b=2' --user me:hunter2", ["-u of curl"], "curl 'https://h/?a=1&b=2' --user me:…"),
        ("x --password=hunter2", ["--password"], "x --password=…"),
        ("x --db.password hunter2 -v", ["--db.password"], "x --db.password … -v"),
        ("redis-cli -h h -a hunter2 ping", ["-a of redis-cli"], "redis-cli -h h -a … ping"),
        ("curl -H 'Authorization: Bearer hunter2' h", ["Authorization:"], "curl -H 'Authorization: Bearer …' h"),
        ("pg_dump postgres://me:hunter2@h/db", ["postgres://"], "pg_dump postgres://me:…@h/db"),
        ("x --token=a://me:hunter2@h y", ["--token", "a://"], "x --token=… y"),
        ("A_TOKEN=hunter2 x --token hunter2", ["A_TOKEN", "--token"], "A_TOKEN=… x --token …"),
        ("MYSQL_PWD=hunter2 a; MYSQL_PWD=hunter2 b", ["MYSQL_PWD"], "MYSQL_PWD=… a; MYSQL_PWD=… b"),
    ],
)
def test_a_password_is_reported_without_its_value(command: str, places: list[str], shown: str) -> None:
    assert find_passwords(command) == places
    assert redact_passwords(command) == shown


@pytest.mark.parametrize(
    "command",
    [
        "PGPASSWORD=$P pg_dump", 'PGPASSWORD="$(cat /etc/p)" x', "PGPASSFILE=/x y", "RESTIC_PASSWORD_FILE=/x y",
        "COMPASS=north x", "PWD=/x y", "mysqldump -u me -p db", "mysql -P3306", "mysqldump db | ssh -p22 h",
        "curl -u me https://h:8080/x", "curl -u me:$P h", "x --password-file=/p", "x --password -v", "mkdir -p /x",
        "ssh -p 22 me@h", "rsync me@h:/x /y", "curl https://h/a:b@c", "x --passive --no-secrets", "date +%H:%M",
    ],
)  # fmt: skip
def test_commands_without_passwords_are_not_reported(command: str) -> None:
    assert find_passwords(command) == []
    assert redact_passwords(command) == command
