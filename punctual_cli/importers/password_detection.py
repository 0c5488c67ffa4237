"""Detection of passwords that are written out in a command, without revealing them.

Values from variables or other commands do not count: they would not be stored in the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_KEYWORDS = "password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key"
_SENSITIVE_VARIABLE = rf"\w*(?:{_KEYWORDS})|(?:\w+_)?pass|\w+_pwd"
_LITERAL_VALUE = r"""(?P<value>(?!["']?[$`])(?:"[^"]+"|'[^']+'|[^\s"';&|()<>]+))"""
_PASSWORD_PATTERNS = tuple(
    (what, re.compile(form + (_LITERAL_VALUE if "?P<value>" not in form else ""), flags))
    for what, form, flags in (
        ("{}", rf"(?<![\w-])(?P<name>{_SENSITIVE_VARIABLE})=", re.IGNORECASE),
        ("{}", rf"(?<!\S)(?P<name>--(?:[\w.-]*?(?:{_KEYWORDS})|pass))(?:=|\s+(?!-))", re.IGNORECASE),
        ("-p of {}", r"\b(?P<name>mysql\w*|mariadb[\w-]*)\b[^;&|]*?\s-p", 0),
        ("-p of {}", r"\b(?P<name>sshpass|mongo\w*)\b[^;&|]*?\s-p\s*", 0),
        ("-a of {}", r"\b(?P<name>redis-cli)\b[^;&|]*?\s-a\s*", 0),
        # An address may have an & in it.
        ("-u of {}", r"""\b(?P<name>curl)\b[^;|]*?\s(?:-\w*u\s*|--user(?:=|\s+))["']?[^\s:"'-][^\s:"']*:"""
                     r"""(?P<value>(?![$`])[^\s"']+)""", 0),
        ("{}:", rf"\b(?P<name>(?:proxy-)?authorization|[\w-]*(?:{_KEYWORDS}))\s*:\s*(?:(?:basic|bearer|token)\s+)?"
                r"""(?P<value>(?![$`])[^\s"':/]+)""", re.IGNORECASE),
        ("{}://", r"""\b(?P<name>[a-z][\w+.-]*)://[^\s/@:"']*:(?P<value>(?![$`])[^\s/@"']+)@""", re.IGNORECASE),
    )
)  # fmt: skip


def find_passwords(text: str) -> list[str]:
    """Return the variable or option of each password: `PGPASSWORD`, `--password`, `-p of mysqldump`."""
    return list(dict.fromkeys(what.format(found["name"]) for what, found in _find_matches(text)))


def redact_passwords(text: str) -> str:
    redacted, position = "", 0
    for start, end in sorted(found.span("value") for _, found in _find_matches(text)):
        if start >= position:
            redacted += f"{text[position:start]}…"
        position = max(position, end)
    return redacted + text[position:]


def _find_matches(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    for what, form in _PASSWORD_PATTERNS:
        for found in form.finditer(text):
            yield what, found
