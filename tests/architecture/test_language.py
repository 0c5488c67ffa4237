"""Words that usually mark a sentence that is not plain English, counted in product code and documents.

Each word also has a plain use, so a few stay. The limits may only fall.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.architecture.test_tree import ROOT, SOURCES

WORDS = re.compile(
    r"\b(told|said|says|whoever|somebody|nobody|anew|beside|so many|stands|goes on|is over|by itself|of which"
    r"|take[sn]? \w+ for|what is)\b",
    re.IGNORECASE,
)
PRODUCT = ("jobs", "workers", "scheduler_project", "punctual_cli", "punctual_client")
# The user "nobody" of Linux.
NAMES = re.compile(r"[\"'`]nobody[\"'`]|user nobody|uid of nobody")
MAX_IN_PRODUCT = 15
MAX_IN_DOCS = 13


def count_words(paths: list[Path]) -> dict[Path, int]:
    counts = {}
    for path in paths:
        found = WORDS.findall(NAMES.sub("", path.read_text(encoding="utf-8")))
        if found:
            counts[path.relative_to(ROOT)] = len(found)
    return counts


def test_product_code_is_plain_english() -> None:
    suffixes = {".py", ".sql", ".html", ".js"}
    paths = [p for p in SOURCES if p.suffix in suffixes and p.relative_to(ROOT).parts[0] in PRODUCT]
    counts = count_words(paths)
    assert len(paths) > 400, "the listing works"
    assert sum(counts.values()) <= MAX_IN_PRODUCT, sorted(counts.items(), key=lambda item: -item[1])[:20]


def test_documents_are_plain_english() -> None:
    paths = [p for p in SOURCES if p.suffix == ".md" and p.relative_to(ROOT).parts[0] not in ("tests", "tools")]
    counts = count_words(paths)
    assert len(paths) > 20, "the listing works"
    assert sum(counts.values()) <= MAX_IN_DOCS, sorted(counts.items(), key=lambda item: -item[1])[:20]
