"""Crontabs are imported into a running stack, repeatedly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.acceptance.test_cli import Ended, punctual
from tests.support.stack import Stack

Job = dict[str, Any]


def import_lines(stack: Stack, folder: Path, *lines: str, words: tuple[str, ...] = ("--yes",)) -> Ended:
    file = folder / "crontab"
    file.write_text("".join(f"{line}\n" for line in lines))
    return punctual(stack, "import", "crontab", file, "--tz", "Europe/Paris", *words)


def jobs_called(stack: Stack, word: str) -> dict[str, Job]:
    found: list[Job] = json.loads(punctual(stack, "jobs", "--search", word, "-o", "json").stdout)
    return {job["id"]: job for job in found if word in job["name"]}


def test_a_crontab_that_grows_changes_none_of_the_jobs_it_made(stack: Stack, tmp_path: Path) -> None:
    first, second, third = (f"{hour} 4 1 1 * growing -{letter}" for hour, letter in enumerate("abc"))
    assert import_lines(stack, tmp_path, first, second).stderr.splitlines()[-1].startswith("Applied 2: growing ")
    before = jobs_called(stack, "growing")
    again = import_lines(stack, tmp_path, second, first)
    assert (again.stdout.splitlines()[-1], again.stderr) == (
        "0 to create, 0 to change, 2 unchanged.", "Nothing to change.\n",
    )  # fmt: skip
    assert import_lines(stack, tmp_path, third, first, second).stdout.endswith(
        "1 to create, 0 to change, 2 unchanged.\n"
    )
    after = jobs_called(stack, "growing")
    assert {key: after[key] for key in before} == before
    moved = import_lines(stack, tmp_path, third, first, second.replace("4 1 1", "5 1 1"))
    assert moved.stdout.endswith("0 to create, 1 to change, 2 unchanged.\n")
    assert jobs_called(stack, "growing").keys() == after.keys()
    for key in after:
        punctual(stack, "delete", key, "--yes")


def test_second_crontab_does_not_replace_jobs_of_the_first(stack: Stack, tmp_path: Path) -> None:
    import_lines(stack, tmp_path, "1 2 3 1 * clashing -p")
    before = jobs_called(stack, "clashing")
    refused = import_lines(stack, tmp_path, "9 9 9 9 * clashing -s")
    assert "crontab:1: skipped: clashing: Your job clashing runs something else: --replace" in refused.stderr
    assert jobs_called(stack, "clashing") == before
    for _ in range(2):
        import_lines(stack, tmp_path, "9 9 9 9 * clashing -s", words=("--yes", "--keep-both"))
        both = jobs_called(stack, "clashing")
        assert len(both) == 2
        assert {key: both[key] for key in before} == before
    for key in both:
        punctual(stack, "delete", key, "--yes")
