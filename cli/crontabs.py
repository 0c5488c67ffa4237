"""A crontab as jobs: what cron does with each line, and what of it a sandbox cannot do.

The fields mean the same here as in cron; what is cron's own way to say something (`~`, `%`, CRON_TZ, RANDOM_DELAY) is
translated, and @reboot, which is no time, is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from cli.errors import UsageMistakeError
from cli.imported import Imported, Imports, LeftOut, Note, plain_name
from cli.passwords import passwords_in, without_passwords
from cli.values import parse_zone
from cli.yaml_reading import MOST_BYTES

NICKNAMES = {
    name: name for name in ("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually")
} | {"@every_minute": "* * * * *"}  # fmt: skip
SHELLS = {"sh": "sh", "dash": "sh", "bash": "bash"}
BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
# Variables that speak to cron itself, or of a home that a sandbox has not.
_CRONS_OWN = frozenset(
    {"SHELL", "MAILTO", "MAILFROM", "CRON_TZ", "RANDOM_DELAY", "HOME", "LOGNAME", "USER", "CONTENT_TYPE",
     "CONTENT_TRANSFER_ENCODING", "START_HOURS_RANGE"}
)  # fmt: skip
_SETTING = re.compile(r"""\s*["']?([A-Za-z_]\w*)["']?\s*=\s*(.*?)\s*""", re.ASCII)
_ENTRY = re.compile(r"\s*-?(@\w+|(?:[^\s#=]+[ \t]+){4}[^\s=]+)[ \t]+(\S.*)")
_USER = re.compile(r"(\S+)[ \t]+(\S.*)")
_RANDOM = re.compile(r"(\d*)~(\d*)", re.ASCII)
_FIRST_FIELD = re.compile(r"[\d*/,~-]+\Z|@\w+\Z", re.ASCII)

_PATH = re.compile(r"(?<![\w$}/.:~-])(?:~|\$HOME|\$\{HOME\})?/[\w.@+,/-]*[\w]")
_VISIBLE = (
    "/usr/",
    "/bin/",
    "/sbin/",
    "/lib",
    "/dev/null",
    "/dev/std",
    "/dev/urandom",
    "/dev/zero",
    "/proc/self",
    "/work/",
)
_TEMPORARY = "/tmp"  # noqa: S108  a name, not a use
_WORD = re.compile(r"[^\s;&|()<>`'\"$]+")
_NETWORKED = frozenset(
    {"apt", "apt-get", "aws", "certbot", "curl", "dnf", "docker", "ftp", "gcloud", "git", "gsutil", "kubectl", "mail",
     "mailx", "mongodump", "mysql", "mysqldump", "nc", "ntpdate", "pg_dump", "pg_dumpall", "ping", "pip", "psql",
     "rclone", "redis-cli", "rsync", "s3cmd", "scp", "sendmail", "sftp", "ssh", "wget", "yum"}
)  # fmt: skip
_OF_THE_HOST = frozenset(
    {"docker", "journalctl", "logrotate", "mount", "reboot", "service", "shutdown", "su", "sudo", "systemctl", "umount"}
)
# Of systems, and not of programs too: whose name stands in front of a command is meant as its user.
_USERS = frozenset(
    {"root", "www-data", "nobody", "daemon", "postgres", "apache", "nginx", "ubuntu", "admin", "ec2-user"}
)
_WRAPPERS = frozenset(
    {"bash", "cd", "chronic", "command", "env", "exec", "flock", "ionice", "nice", "node", "nohup", "perl", "php",
     "python", "python3", "ruby", "run-one", "sh", "sudo", "test", "time", "timeout", "[", "]", "-", "&&", "||"}
)  # fmt: skip
_KEPT_APART = (
    "./punctual secrets set NAME keeps it apart, and in a file that --write writes,"
    " secrets: [{name: NAME, env: VARIABLE}] gives it to the job."
)


@dataclass
class _Reading:
    """What the lines so far have set."""

    timezone: str
    variables: dict[str, str] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    comment: str | None = None


def read_crontab(content: bytes, file: str, *, system: bool, timezone: str) -> Imports:
    """`system`: a sixth field names the user, as in /etc/crontab."""
    reading = _Reading(timezone)
    jobs: list[Imported] = []
    left_out: list[LeftOut] = []
    for number, line in enumerate(_text(content, file).split("\n"), start=1):
        where, bare = f"{file}:{number}", line.strip()
        if not bare:
            reading.comment = None
        elif bare.startswith("#"):
            reading.comment = _title(bare.lstrip("#").strip())
        elif setting := _SETTING.fullmatch(line):
            _set(reading, setting[1], setting[2], where)
        else:
            try:
                jobs.append(_job(line, where, reading, system=system))
            except ValueError as refusal:
                left_out.append(LeftOut(where, without_passwords(bare), str(refusal)))
            reading.comment = None
    return Imports(tuple(jobs), tuple(left_out), tuple(reading.notes))


def machine_zone(environment: Mapping[str, str], etc: Path = Path("/etc")) -> str:
    """The zone that cron on this machine goes by."""
    candidates = [environment.get("TZ", "").lstrip(":")]
    _, found, linked = str((etc / "localtime").resolve()).partition("/zoneinfo/")
    candidates.append(linked if found else "")
    try:
        candidates.append((etc / "timezone").read_text(encoding="utf-8").strip())
    except (OSError, ValueError):
        candidates.append("")
    for name in candidates:
        if name and not name.startswith("/"):
            return parse_zone(name).key
    raise UsageMistakeError("The time zone of this machine has no name: say it with --tz, such as --tz Europe/Paris.")


def _text(content: bytes, file: str) -> str:
    if len(content) > MOST_BYTES:
        raise UsageMistakeError(f"{file} has more than {MOST_BYTES} bytes: this is no crontab.")
    try:
        # Editors of Windows begin a file with a mark and end each line with two characters.
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise UsageMistakeError(f"{file} is not UTF-8 text.") from None
    if "\0" in text:
        raise UsageMistakeError(f"{file} has NUL characters in it: this is no crontab.")
    return text


def _title(comment: str) -> str | None:
    """A comment names what follows, unless it is a ruler, the header of the columns, or a line put out of use."""
    words = comment.split()
    has_letters = sum(character.isalpha() for character in comment) >= 3
    if not words or not has_letters or _FIRST_FIELD.match(words[0]) or words[:3] == ["m", "h", "dom"]:
        return None
    return comment if len(comment) <= 100 and "=" not in words[0] else None


def _set(reading: _Reading, name: str, value: str, where: str) -> None:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    if name == "CRON_TZ":
        try:
            reading.timezone = parse_zone(value).key
        except UsageMistakeError as error:
            raise UsageMistakeError(f"{where}: {error.sentence}") from None
    if reading.variables.get(name) != value:
        reading.notes += [Note(where, sentence) for sentence in _notes_of_setting(name, value)]
    reading.variables[name] = value


def _job(line: str, where: str, reading: _Reading, *, system: bool) -> Imported:
    entry = _ENTRY.fullmatch(line)
    if entry is None:
        raise ValueError("This is neither a setting nor a line of five fields and a command.")
    cron, rest, user = _expression(entry[1]), entry[2], None
    if system:
        columns = _USER.fullmatch(rest)
        if columns is None:
            raise ValueError("The column of the user, or the command behind it, is missing.")
        user, rest = columns[1], columns[2]
    command, stdin = split_command(rest)
    if not command.strip():
        raise ValueError("There is no command.")
    variables = reading.variables
    shell = PurePosixPath(variables.get("SHELL") or "/bin/sh").name
    schedule: dict[str, object] = {"cron": cron, "timezone": reading.timezone, "catch_up": "none"}
    if (delay := variables.get("RANDOM_DELAY", "0")).isdecimal() and int(delay[:6]):
        schedule["jitter_seconds"] = int(delay[:6]) * 60
    job: dict[str, object] = {
        "name": plain_name(reading.comment or _name_of(command)),
        "runtime": SHELLS.get(shell, "sh"),
        "script": f"{command}\n",
        "schedules": [schedule],
        "timeout": "1d",
        "max_concurrency": None,
    }
    if env := {name: value for name, value in variables.items() if _is_carried(name)}:
        job["env"] = env
    if stdin is not None:
        job["stdin"] = stdin
    warnings = warnings_of(command, stdin or "")
    if user is not None:
        warnings.insert(0, f"It ran as {user}; here it runs as a user without rights.")
    if not system and command.split()[0] in _USERS:
        warnings.insert(
            0, f"Its command begins with {command.split()[0]}, as if that were the user: is --system meant?"
        )
    return Imported(where, job, tuple(warnings))


def _is_carried(name: str) -> bool:
    return name not in _CRONS_OWN and not name.startswith("PUNCTUAL_")


def _expression(written: str) -> str:
    if written.startswith("@"):
        if written.lower() == "@reboot":
            raise ValueError("It runs when the machine starts, which is no time: make it a service of the machine.")
        if written.lower() not in NICKNAMES:
            raise ValueError(f"{written} is not known.")
        return NICKNAMES[written.lower()]
    return " ".join(_field(word, *bounds) for word, bounds in zip(written.split(), BOUNDS, strict=True))


def _field(word: str, lowest: int, highest: int) -> str:
    """`5~20` of cronie and OpenBSD is a value of the line's own between the two, as H(5-20) is."""
    random = _RANDOM.fullmatch(word)
    if random is None:
        return word
    return f"H({random[1] or lowest}-{random[2] or highest})" if random[1] or random[2] else "H"


def split_command(written: str) -> tuple[str, str | None]:
    """Up to the first % that has no backslash; behind it is standard input, in which each further one ends a line."""
    parts = [part.replace("\\%", "%") for part in re.split(r"(?<!\\)%", written)]
    return parts[0].strip(), "\n".join(parts[1:]) + "\n" if len(parts) > 1 else None


def _name_of(command: str) -> str:
    """What it runs, without what only wraps it."""
    words = [word for word in _WORD.findall(command) if not word.startswith("-") and "=" not in word]
    skipped_folder = False
    for before, word in zip(["", *words], words, strict=False):
        if before == "cd" and not skipped_folder:
            skipped_folder = True
            continue
        name = PurePosixPath(word).name
        if name and name not in _WRAPPERS and any(character.isalpha() for character in name):
            return PurePosixPath(name).stem or name
    return "cron job"


def _notes_of_setting(name: str, value: str) -> Iterator[str]:
    """Where it is set, and not at each of the lines that it counts for."""
    if name == "MAILTO" and value:
        yield f"cron mailed what jobs wrote to {value}; here it is in the log: ./punctual logs."
    shell = PurePosixPath(value).name
    if name == "SHELL" and shell and shell not in SHELLS:
        yield f"What follows ran in {shell}; it is imported for sh."
    if name.startswith("PUNCTUAL_") or name == "HOME":
        yield f"{name} is not carried over."
    elif _is_carried(name) and passwords_in(f"{name}={value}"):
        yield f"{name} has a password in it, and would be in the env of what follows: {_KEPT_APART}"


def warnings_of(command: str, stdin: str = "") -> list[str]:
    """What should not be in a job, and what a sandbox, which sees none of the host's files but its programs, cannot."""
    warnings = []
    if places := passwords_in(f"{command}\n{stdin}"):
        warnings.append(f"There is a password in it ({', '.join(places)}), and would be in the script: {_KEPT_APART}")
    paths = list(dict.fromkeys(_PATH.findall(re.sub(r"\w+://\S*", "", command))))
    hidden = [path for path in paths if not path.startswith((*_VISIBLE, _TEMPORARY))]
    if hidden:
        warnings.append(
            f"The sandbox does not see {', '.join(hidden)}: give it as an input, or bring it in the script."
        )
    if any(path.startswith(_TEMPORARY) for path in paths):
        warnings.append(f"{_TEMPORARY} is its own, and empty at every run: leave what is to stay in out/.")
    names = {PurePosixPath(word).name for word in _WORD.findall(command)}
    if re.search(r"(?:^|[\s;&|(])\.{1,2}/", command) or ("cd" in names and not hidden):
        warnings.append("cron ran it in a home directory; here it runs in an empty one.")
    if networked := sorted(names & _NETWORKED):
        warnings.append(f"{', '.join(networked)} may need a network, which a job has only with network: true.")
    if host := sorted(names & _OF_THE_HOST):
        warnings.append(f"{', '.join(host)} acts on the machine itself, which no job can: leave it in cron.")
    return warnings
