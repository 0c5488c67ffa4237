"""Commands, options and links in the documents exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.punctual_cli.whole import whole_tree

ROOT = Path(__file__).resolve().parents[3]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
# These are no commands of the command line, but of the stack and of a worker.
ELSEWHERE = {"up", "down", "stack", "worker", "test"}
PROFILE = re.compile(r"^--profile \S+ ")
OPTION = re.compile(r"(?<=\s)--[a-z][a-z-]*")


def typed(page: Path) -> Iterator[list[str]]:
    """Every command line of a page, as words; whatever follows it in a line of prose is left out."""
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            for command in re.findall(r"\./punctual ([^#|;)]*)", re.sub(r'"[^"]*"', '"…"', line)):
                yield PROFILE.sub("", command).split()
    for command in re.findall(r"`\./punctual ([^`]*)`", text):
        yield PROFILE.sub("", command).split()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documented_commands_and_options_exist(page: Path) -> None:
    root = whole_tree()
    for words in typed(page):
        if not words or words[0] in ELSEWHERE or not re.fullmatch(r"[a-z][a-z-]*", words[0]):
            continue
        command: Any = root
        for word in words:
            if word not in getattr(command, "commands", {}):
                break
            command = command.commands[word]
        assert command is not root, f"{page.name}: there is no command ./punctual {' '.join(words)}"
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        missing = set(OPTION.findall(f" {' '.join(words)}")) - known - {"--help"}
        assert not missing, f"{page.name}: ./punctual {' '.join(words)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_the_documents_exist(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, heading = target.partition("#")
        found = page if not file else page.parent / file
        assert found.exists(), f"{page} points to {target}"
        if heading and found.suffix == ".md":
            titles = re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
            assert heading in slugs, f"{page} points to {target}"
