"""How text of strangers is shown to a person: every character that could steer a screen is shown instead of obeyed.

The command line has the same rule in `cli.terminal`, which may import nothing of ours; a test compares the two.
"""

from __future__ import annotations

import unicodedata

# Cc: control, Cf: marks that turn the direction of text, Cs: halves of characters, Zl and Zp: line breaks.
_HOSTILE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS = frozenset("\u200c\u200d")


def show_log(data: bytes) -> str:
    """Of what a program wrote, tabs and line ends are left; bytes that are no text become U+FFFD."""
    return neutralise(data.decode("utf-8", "replace").replace("\r\n", "\n"), keep="\n\t")


def neutralise(text: str, *, keep: str = "") -> str:
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        _shown(character)
        if character not in keep
        and character not in _JOINERS
        and unicodedata.category(character) in _HOSTILE_CATEGORIES
        else character
        for character in text
    )


def _shown(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
