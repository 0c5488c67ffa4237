"""Rules about the tree itself that no other tool checks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

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
STATEMENTS = sorted((ROOT / "jobs" / "sql").glob("*.sql"))
SETS_STATE = re.compile(r"\bSET\b(?:(?!\bFROM\b|\bWHERE\b).)*?\bstate\s*=", re.DOTALL)


def test_no_file_of_code_is_longer_than_400_lines() -> None:
    lengths = {path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in PYTHON}
    assert {path: length for path, length in lengths.items() if length > 400} == {}
    assert len(lengths) > 100, "the listing works"


def test_no_file_leaves_work_for_later() -> None:
    marks = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX", "NotImplemented" + "Error"]) + r")\b")
    assert [path.relative_to(ROOT) for path in PYTHON if marks.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda path: path.stem)
def test_every_statement_names_its_caller(statement: Path) -> None:
    header = statement.read_text(encoding="utf-8").splitlines()[0]
    module, function = re.match(r"-- (\w+)\.(\w+)", header).groups()  # type: ignore[union-attr]
    places = [ROOT / "jobs" / "services" / f"{module}.py", ROOT / "jobs" / f"{module}.py"]
    (caller,) = [path.read_text(encoding="utf-8") for path in places if path.exists()]
    assert re.search(rf"(def|class) {function}\b", caller)
    assert f'"{statement.stem}"' in caller


def test_only_transitions_writes_the_state_of_an_execution() -> None:
    writers = {
        s.stem
        for s in STATEMENTS
        if re.search(r"(UPDATE|INTO) jobs_execution\b", text := s.read_text())
        and (SETS_STATE.search(text) or "INTO jobs_execution " in text)
    }
    transitions = (ROOT / "jobs" / "services" / "transitions.py").read_text(encoding="utf-8")
    assert writers
    assert {name for name in writers if f'"{name}"' not in transitions} == set()
    for path in (ROOT / "jobs").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"Execution\.objects[^\n]*\.(update|create|bulk_create|bulk_update)\(", text), path


def test_the_configuration_page_lists_every_variable() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    variables = {str(field.validation_alias) for field in Environment.model_fields.values()}
    assert {name for name in variables if f"`{name}`" not in page} == set()
