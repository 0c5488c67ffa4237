"""Validation of names: readable ones and those with invisible characters."""

from __future__ import annotations

import pytest

from jobs.domain.text_validation import is_readable_name

UNREADABLE = (
    " ", "\u00a0\u2003\u3000", "\u200b", "\u2800", "\u3164", "\u0301", "a\nb", "a\x1b[2Jb", "a\x85b", "a\u2028b",
    "a\u202eb", "a\u202ab", "a\u2066b", "a\u2069b", "a\u200fb", "a\u200bb", "a\ufeffb", "a\u00adb",
)  # fmt: skip
READABLE = (
    "caf\u00e9", "cafe\u0301", "\u212b", "\ufb01", "na\u00efve \u4f60\u597d", "\U0001f469\u200d\U0001f680",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "  kept  as it is ", "\u2764\ufe0f", "x\u0335\u0336\u0337" * 10,
)  # fmt: skip


@pytest.mark.parametrize("name", UNREADABLE, ids=ascii)
def test_name_with_invisible_characters_is_refused(name: str) -> None:
    assert not is_readable_name(name)


@pytest.mark.parametrize("name", READABLE, ids=ascii)
def test_names_of_every_script_are_accepted(name: str) -> None:
    assert is_readable_name(name)
