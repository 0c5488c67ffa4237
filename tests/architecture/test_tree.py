"""Rules about the tree itself that no other tool checks."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from jobs.db import sql
from scheduler_project.settings.environment import Environment

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    if (ROOT / name).is_file()
]
PYTHON = [path for path in SOURCES if path.suffix == ".py"]
STATEMENT_FILES = [path for path in SOURCES if path.suffix == ".sql" and path.is_relative_to(ROOT / "jobs")]
SETS_STATE = re.compile(r"\bSET\b(?:(?!\bFROM\b|\bWHERE\b).)*?\bstate\s*=", re.DOTALL)
MAX_LINES = 400
MAX_MODULES = 22


def test_no_file_of_code_is_longer_than_400_lines() -> None:
    written = [path for path in PYTHON if path.parent.name != "migrations"]  # Django writes those
    lengths = {path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in written}
    assert {path: length for path, length in lengths.items() if length > MAX_LINES} == {}
    assert len(lengths) > 100, "the listing works"


def test_no_folder_of_the_product_has_too_many_modules() -> None:
    products = ("jobs", "workers", "scheduler_project", "punctual_cli", "punctual_client")
    folders = Counter(path.parent.relative_to(ROOT) for path in PYTHON)
    ours = {folder: count for folder, count in folders.items() if folder.parts and folder.parts[0] in products}
    assert {folder: count for folder, count in ours.items() if count > MAX_MODULES} == {}
    assert len(ours) > 30, "the listing works"


def test_no_file_leaves_work_for_later() -> None:
    marks = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX", "NotImplemented" + "Error"]) + r")\b")
    assert [path.relative_to(ROOT) for path in PYTHON if marks.search(path.read_text(encoding="utf-8"))] == []


def blocks(path: Path) -> list[str]:
    return re.findall(r"^-- name: (\w+)$", path.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("path", STATEMENT_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_sql_file_is_used_by_the_module_of_its_name(path: Path) -> None:
    caller = path.with_suffix(".py").read_text(encoding="utf-8")
    assert blocks(path)
    for name in blocks(path):
        assert f'"{name}"' in caller, name


def test_only_transitions_writes_the_state_of_an_execution() -> None:
    writers = {
        path.relative_to(ROOT)
        for path in STATEMENT_FILES
        for name in blocks(path)
        if re.search(r"(UPDATE|INTO) jobs_execution\b", text := sql.statement(name))
        and (SETS_STATE.search(text) or "INTO jobs_execution " in text)
    }
    assert writers == {Path("jobs/execution/transitions.sql")}
    for path in (ROOT / "jobs").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"Execution\.objects[^\n]*\.(update|create|bulk_create|bulk_update)\(", text), path


def test_the_configuration_page_lists_every_variable() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    variables = {str(field.validation_alias) for field in Environment.model_fields.values()}
    assert {name for name in variables if f"`{name}`" not in page} == set()
