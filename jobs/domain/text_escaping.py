"""Escapes untrusted text for display: control and direction characters become visible.

`punctual_cli.output.terminal` has the same rule, because it may not import the server; a test compares the two.
"""

from __future__ import annotations

import unicodedata

# Cc: control characters, Cf: direction marks, Cs: surrogates, Zl and Zp: line breaks.
_ESCAPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS = frozenset("\u200c\u200d")


def decode_log(data: bytes) -> str:
    """Decode a program's output for display, keeping tabs and line ends; invalid UTF-8 becomes U+FFFD."""
    return escape_control_characters(data.decode("utf-8", "replace").replace("\r\n", "\n"), keep="\n\t")


def escape_control_characters(text: str, *, keep: str = "") -> str:
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        _escape(character)
        if character not in keep
        and character not in _JOINERS
        and unicodedata.category(character) in _ESCAPED_CATEGORIES
        else character
        for character in text
    )


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
