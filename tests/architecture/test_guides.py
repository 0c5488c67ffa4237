"""What guides a reader through the tree is true: package docstrings, paths in documents, the data walk and names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.test_tree import PYTHON, ROOT, SOURCES

PRODUCTS = ("jobs", "workers", "scheduler_project", "punctual_cli", "punctual_client")
PACKAGES = [
    path.parent
    for path in PYTHON
    if path.name == "__init__.py" and path.relative_to(ROOT).parts[0] in PRODUCTS and path.parent.name != "migrations"
]
DOCUMENTS = [path for path in SOURCES if path.suffix == ".md"]
MAX_WALK_MODULES = 60
# Names that were replaced, each by one that a reader need not ask about.
FORMER_NAMES = re.compile(
    r"\b(meant\.py|of_execution|keeping_calls|[Pp]atience|PatientConnection|present_actor|recent\.Recent|Recent\(|MOST"
    r"|@repeatable|settle_endings|hold_duty|Standing|[Ss]hel(f|ves)|_Ahead|HurriedRedis|tell_of_room|WakeEar|Ear\("
    r"|Workshop|Equipment|equipping|Consuming|Ward|trust\(\)|give_back|UNHURRIED_COMMIT|_told|_shown|neutralise"
    r"|storable\.py|audit_trail|class (Asked|Seats?|Free|Fleet|Look|Sight|naming))(?!\w)"
)


def find_module(package: Path, words: list[str]) -> tuple[Path, list[str]]:
    """Follow module names from a package; return the last file they lead to, and the words left over."""
    if words and (module := package / f"{words[0]}.py").is_file():
        return module, words[1:]
    if words and (package / words[0]).is_dir():
        return find_module(package / words[0], words[1:])
    return package / "__init__.py", words


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_package_docstring_names_existing_entry_points(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8")))
    assert docstring
    for name in re.findall(r"`(\w+(?:\.\w+)*)`", docstring.partition("Entry point")[2]):
        module, left = find_module(package, name.split("."))
        text = module.read_text(encoding="utf-8")
        assert all(re.search(rf"\b{word}\b", text.replace(docstring, "")) for word in left), name


def test_paths_in_documents_exist() -> None:
    roots = (*PRODUCTS, "tests", "tools", "benchmarks", "docs", "requirements", "examples")
    named = re.compile(rf"`((?:{'|'.join(roots)})/[\w/.-]*)`")
    paths = [
        (document, path)
        for document in DOCUMENTS
        for path in named.findall(document.read_text(encoding="utf-8"))
        if not (ROOT / path).exists() and not (ROOT / f"{path}.py").exists()
    ]
    assert [(document.relative_to(ROOT), path) for document, path in paths] == []


def test_data_walk_names_few_modules_that_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    walk = page.partition("## The data walk")[2].partition("\n## ")[0]
    modules = {
        Path(package, module)
        for package, cell in re.findall(r"^\|[^|]*\| `([\w/]+)` \| (.*) \|$", walk, re.MULTILINE)
        for module in re.findall(r"`([\w/]+)`", re.sub(r"\([^)]*\)", "", cell))
    }
    assert [m for m in modules if not (ROOT / f"{m}.py").is_file() and not (ROOT / m / "__init__.py").is_file()] == []
    assert 50 < len(modules) <= MAX_WALK_MODULES
    assert f"{len(modules)} modules" in walk


def test_former_names_are_gone() -> None:
    files = [p for p in SOURCES if p.suffix in {".py", ".sql", ".md", ".html"} and p.name != "CHANGELOG.md"]
    explained = [ROOT / "docs" / "decisions", Path(__file__)]
    found = {
        (path.relative_to(ROOT), match[0])
        for path in files
        if not any(path.is_relative_to(each) for each in explained)
        for match in FORMER_NAMES.finditer(path.read_text(encoding="utf-8"))
    }
    assert found == set()
