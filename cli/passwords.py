"""Where a command has a password in it, told without the password.

What comes from a variable or from another command is none: only what is written out would get into a job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_WORDS = "password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key"
_VARIABLE = rf"\w*(?:{_WORDS})|(?:\w+_)?pass|\w+_pwd"
_WRITTEN_OUT = r"""(?P<value>(?!["']?[$`])(?:"[^"]+"|'[^']+'|[^\s"';&|()<>]+))"""
_PLACES = tuple(
    (what, re.compile(form + (_WRITTEN_OUT if "?P<value>" not in form else ""), flags))
    for what, form, flags in (
        ("{}", rf"(?<![\w-])(?P<name>{_VARIABLE})=", re.IGNORECASE),
        ("{}", rf"(?<!\S)(?P<name>--(?:[\w.-]*?(?:{_WORDS})|pass))(?:=|\s+(?!-))", re.IGNORECASE),
        ("-p of {}", r"\b(?P<name>mysql\w*|mariadb[\w-]*)\b[^;&|]*?\s-p", 0),
        ("-p of {}", r"\b(?P<name>sshpass|mongo\w*)\b[^;&|]*?\s-p\s*", 0),
        ("-a of {}", r"\b(?P<name>redis-cli)\b[^;&|]*?\s-a\s*", 0),
        # An address may have an & in it.
        ("-u of {}", r"""\b(?P<name>curl)\b[^;|]*?\s(?:-\w*u\s*|--user(?:=|\s+))["']?[^\s:"'-][^\s:"']*:"""
                     r"""(?P<value>(?![$`])[^\s"']+)""", 0),
        ("{}:", rf"\b(?P<name>(?:proxy-)?authorization|[\w-]*(?:{_WORDS}))\s*:\s*(?:(?:basic|bearer|token)\s+)?"
                r"""(?P<value>(?![$`])[^\s"':/]+)""", re.IGNORECASE),
        ("{}://", r"""\b(?P<name>[a-z][\w+.-]*)://[^\s/@:"']*:(?P<value>(?![$`])[^\s/@"']+)@""", re.IGNORECASE),
    )
)  # fmt: skip


def passwords_in(text: str) -> list[str]:
    """What each is given with: `PGPASSWORD`, `--password`, `-p of mysqldump`."""
    return list(dict.fromkeys(what.format(found["name"]) for what, found in _found(text)))


def without_passwords(text: str) -> str:
    shown, done = "", 0
    for start, end in sorted(found.span("value") for _, found in _found(text)):
        if start >= done:
            shown += f"{text[done:start]}…"
        done = max(done, end)
    return shown + text[done:]


def _found(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    for what, form in _PLACES:
        for found in form.finditer(text):
            yield what, found
