"""Import of a crontab as jobs, with warnings about what a sandbox cannot do.

The fields mean the same as in cron. cron's own notation (`~`, `%`, CRON_TZ, RANDOM_DELAY) is translated; @reboot, which
is not a time, is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from punctual_cli.apply.yaml_reading import MAX_FILE_BYTES
from punctual_cli.argument_parsing import parse_timezone
from punctual_cli.importers.import_result import ImportedJob, ImportNote, ImportResult, SkippedEntry, clean_name
from punctual_cli.importers.password_detection import find_passwords, redact_passwords
from punctual_client.errors import PROGRAM, UsageError

NICKNAMES = {
    name: name for name in ("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually")
} | {"@every_minute": "* * * * *"}  # fmt: skip
SHELLS = {"sh": "sh", "dash": "sh", "bash": "bash"}
FIELD_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
# Variables that configure cron, or refer to a home directory, which sandboxes lack.
_CRON_VARIABLES = frozenset(
    {"SHELL", "MAILTO", "MAILFROM", "CRON_TZ", "RANDOM_DELAY", "HOME", "LOGNAME", "USER", "CONTENT_TYPE",
     "CONTENT_TRANSFER_ENCODING", "START_HOURS_RANGE"}
)  # fmt: skip
_SETTING = re.compile(r"""\s*["']?([A-Za-z_]\w*)["']?\s*=\s*(.*?)\s*""", re.ASCII)
_ENTRY = re.compile(r"\s*-?(@\w+|(?:[^\s#=]+[ \t]+){4}[^\s=]+)[ \t]+(\S.*)")
_USER_COLUMN = re.compile(r"(\S+)[ \t]+(\S.*)")
_RANDOM_RANGE = re.compile(r"(\d*)~(\d*)", re.ASCII)
_FIRST_FIELD = re.compile(r"[\d*/,~-]+\Z|@\w+\Z", re.ASCII)

_PATH = re.compile(r"(?<![\w$}/.:~-])(?:~|\$HOME|\$\{HOME\})?/[\w.@+,/-]*[\w]")
_SANDBOX_PATHS = (
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
_TMP_PATH = "/tmp"  # noqa: S108  a name, not a use
_WORD = re.compile(r"[^\s;&|()<>`'\"$]+")
_NETWORK_COMMANDS = frozenset(
    {"apt", "apt-get", "aws", "certbot", "curl", "dnf", "docker", "ftp", "gcloud", "git", "gsutil", "kubectl", "mail",
     "mailx", "mongodump", "mysql", "mysqldump", "nc", "ntpdate", "pg_dump", "pg_dumpall", "ping", "pip", "psql",
     "rclone", "redis-cli", "rsync", "s3cmd", "scp", "sendmail", "sftp", "ssh", "wget", "yum"}
)  # fmt: skip
_HOST_COMMANDS = frozenset(
    {"docker", "journalctl", "logrotate", "mount", "reboot", "service", "shutdown", "su", "sudo", "systemctl", "umount"}
)
# Users that are not also programs: such a first word is probably a user column.
_SYSTEM_USERS = frozenset(
    {"root", "www-data", "nobody", "daemon", "postgres", "apache", "nginx", "ubuntu", "admin", "ec2-user"}
)
_WRAPPER_COMMANDS = frozenset(
    {"bash", "cd", "chronic", "command", "env", "exec", "flock", "ionice", "nice", "node", "nohup", "perl", "php",
     "python", "python3", "ruby", "run-one", "sh", "sudo", "test", "time", "timeout", "[", "]", "-", "&&", "||"}
)  # fmt: skip
_SECRETS_HINT = (
    f"store it with {PROGRAM} secrets set NAME, and pass it to the job with"
    " secrets: [{name: NAME, env: VARIABLE}] in a file that --write creates."
)


@dataclass
class _CrontabState:
    """The settings of the lines read so far."""

    timezone: str
    variables: dict[str, str] = field(default_factory=dict)
    notes: list[ImportNote] = field(default_factory=list)
    comment: str | None = None


def read_crontab(content: bytes, file: str, *, system: bool, timezone: str) -> ImportResult:
    """Convert the lines of a crontab; `system`: a sixth field names the user, as in /etc/crontab."""
    state = _CrontabState(timezone)
    jobs: list[ImportedJob] = []
    skipped: list[SkippedEntry] = []
    for number, line in enumerate(_decode_crontab(content, file).split("\n"), start=1):
        where, bare = f"{file}:{number}", line.strip()
        if not bare:
            state.comment = None
        elif bare.startswith("#"):
            state.comment = _name_from_comment(bare.lstrip("#").strip())
        elif setting := _SETTING.fullmatch(line):
            _apply_setting(state, setting[1], setting[2], where)
        else:
            try:
                jobs.append(_convert_line(line, where, state, system=system))
            except ValueError as error:
                skipped.append(SkippedEntry(where, redact_passwords(bare), str(error)))
            state.comment = None
    return ImportResult(tuple(jobs), tuple(skipped), tuple(state.notes))


def find_machine_timezone(environment: Mapping[str, str], etc: Path = Path("/etc")) -> str:
    """Return the time zone of cron on this machine."""
    candidates = [environment.get("TZ", "").lstrip(":")]
    _, found, linked = str((etc / "localtime").resolve()).partition("/zoneinfo/")
    candidates.append(linked if found else "")
    try:
        candidates.append((etc / "timezone").read_text(encoding="utf-8").strip())
    except (OSError, ValueError):
        candidates.append("")
    for name in candidates:
        if name and not name.startswith("/"):
            return parse_timezone(name).key
    raise UsageError("The time zone of this machine is unknown: set it with --tz, such as --tz Europe/Paris.")


def _decode_crontab(content: bytes, file: str) -> str:
    if len(content) > MAX_FILE_BYTES:
        raise UsageError(f"{file} has more than {MAX_FILE_BYTES} bytes: it is not a crontab.")
    try:
        # Windows editors write a byte order mark and CRLF line ends.
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8 text.") from None
    if "\0" in text:
        raise UsageError(f"{file} contains NUL characters: it is not a crontab.")
    return text


def _name_from_comment(comment: str) -> str | None:
    """Return a comment as a job name, unless it is a ruler, a column header or a disabled line."""
    words = comment.split()
    has_letters = sum(character.isalpha() for character in comment) >= 3
    if not words or not has_letters or _FIRST_FIELD.match(words[0]) or words[:3] == ["m", "h", "dom"]:
        return None
    return comment if len(comment) <= 100 and "=" not in words[0] else None


def _apply_setting(state: _CrontabState, name: str, value: str, where: str) -> None:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    if name == "CRON_TZ":
        try:
            state.timezone = parse_timezone(value).key
        except UsageError as error:
            raise UsageError(f"{where}: {error.message}") from None
    if state.variables.get(name) != value:
        state.notes += [ImportNote(where, message) for message in _describe_setting(name, value)]
    state.variables[name] = value


def _convert_line(line: str, where: str, state: _CrontabState, *, system: bool) -> ImportedJob:
    entry = _ENTRY.fullmatch(line)
    if entry is None:
        raise ValueError("This is neither a setting nor five fields and a command.")
    cron, rest, user = _convert_expression(entry[1]), entry[2], None
    if system:
        columns = _USER_COLUMN.fullmatch(rest)
        if columns is None:
            raise ValueError("The user column or the command after it is missing.")
        user, rest = columns[1], columns[2]
    command, stdin = split_command(rest)
    if not command.strip():
        raise ValueError("There is no command.")
    variables = state.variables
    shell = PurePosixPath(variables.get("SHELL") or "/bin/sh").name
    schedule: dict[str, object] = {"cron": cron, "timezone": state.timezone, "catch_up": "none"}
    if (delay := variables.get("RANDOM_DELAY", "0")).isdecimal() and int(delay[:6]):
        schedule["jitter_seconds"] = int(delay[:6]) * 60
    job: dict[str, object] = {
        "name": clean_name(state.comment or _name_from_command(command)),
        "runtime": SHELLS.get(shell, "sh"),
        "script": f"{command}\n",
        "schedules": [schedule],
        "timeout": "1d",
        "max_concurrency": None,
    }
    if env := {name: value for name, value in variables.items() if _is_variable_kept(name)}:
        job["env"] = env
    if stdin is not None:
        job["stdin"] = stdin
    warnings = find_warnings(command, stdin or "")
    if user is not None:
        warnings.insert(0, f"It ran as {user}; here it runs as an unprivileged user.")
    if not system and command.split()[0] in _SYSTEM_USERS:
        warnings.insert(
            0, f"Its command begins with {command.split()[0]}, which looks like a user: did you mean --system?"
        )
    return ImportedJob(where, job, tuple(warnings))


def _is_variable_kept(name: str) -> bool:
    return name not in _CRON_VARIABLES and not name.startswith("PUNCTUAL_")


def _convert_expression(written: str) -> str:
    if written.startswith("@"):
        if written.lower() == "@reboot":
            raise ValueError("It runs when the machine starts, which is not a time: make it a system service.")
        if written.lower() not in NICKNAMES:
            raise ValueError(f"{written} is unknown.")
        return NICKNAMES[written.lower()]
    return " ".join(_convert_field(word, *bounds) for word, bounds in zip(written.split(), FIELD_BOUNDS, strict=True))


def _convert_field(word: str, lowest: int, highest: int) -> str:
    """Convert `5~20` of cronie and OpenBSD, a fixed random value per line, to H(5-20)."""
    random = _RANDOM_RANGE.fullmatch(word)
    if random is None:
        return word
    return f"H({random[1] or lowest}-{random[2] or highest})" if random[1] or random[2] else "H"


def split_command(written: str) -> tuple[str, str | None]:
    """Split a line at the first unescaped %; the rest is standard input, in which % separates lines."""
    parts = [part.replace("\\%", "%") for part in re.split(r"(?<!\\)%", written)]
    return parts[0].strip(), "\n".join(parts[1:]) + "\n" if len(parts) > 1 else None


def _name_from_command(command: str) -> str:
    """Return the name of the program that a command runs, without wrappers such as nice or sudo."""
    words = [word for word in _WORD.findall(command) if not word.startswith("-") and "=" not in word]
    skipped_directory = False
    for before, word in zip(["", *words], words, strict=False):
        if before == "cd" and not skipped_directory:
            skipped_directory = True
            continue
        name = PurePosixPath(word).name
        if name and name not in _WRAPPER_COMMANDS and any(character.isalpha() for character in name):
            return PurePosixPath(name).stem or name
    return "cron job"


def _describe_setting(name: str, value: str) -> Iterator[str]:
    """Describe a setting once, not for each line that it applies to."""
    if name == "MAILTO" and value:
        yield f"cron mailed the output of jobs to {value}; here it is in the log: {PROGRAM} logs."
    shell = PurePosixPath(value).name
    if name == "SHELL" and shell and shell not in SHELLS:
        yield f"The following lines ran in {shell}; they are imported for sh."
    if name.startswith("PUNCTUAL_") or name == "HOME":
        yield f"{name} is not imported."
    elif _is_variable_kept(name) and find_passwords(f"{name}={value}"):
        yield f"{name} contains a password, which would be visible in the env of the following jobs: {_SECRETS_HINT}"


def find_warnings(command: str, stdin: str = "") -> list[str]:
    """Warn about passwords and about what a sandbox, which sees only the host's programs, cannot do."""
    warnings = []
    if places := find_passwords(f"{command}\n{stdin}"):
        warnings.append(
            f"It contains a password ({', '.join(places)}), which would be visible in the script: {_SECRETS_HINT}"
        )
    paths = list(dict.fromkeys(_PATH.findall(re.sub(r"\w+://\S*", "", command))))
    hidden = [path for path in paths if not path.startswith((*_SANDBOX_PATHS, _TMP_PATH))]
    if hidden:
        warnings.append(
            f"The sandbox does not see {', '.join(hidden)}: add it as an input, or include it in the script."
        )
    if any(path.startswith(_TMP_PATH) for path in paths):
        warnings.append(f"{_TMP_PATH} is private and empty in every run: write files to keep to out/.")
    names = {PurePosixPath(word).name for word in _WORD.findall(command)}
    if re.search(r"(?:^|[\s;&|(])\.{1,2}/", command) or ("cd" in names and not hidden):
        warnings.append("cron ran it in a home directory; here it runs in an empty one.")
    if networked := sorted(names & _NETWORK_COMMANDS):
        warnings.append(f"{', '.join(networked)} may need a network, which a job has only with network: true.")
    if host := sorted(names & _HOST_COMMANDS):
        warnings.append(f"{', '.join(host)} acts on the machine itself, which no job can: keep it in cron.")
    return warnings
