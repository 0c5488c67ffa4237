"""`pip install` of the checkout installs the command and the client, and nothing of the server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from punctual_cli import VERSION
from tests.support.stack import Stack

ROOT = Path(__file__).resolve().parents[2]
PIN = re.compile(r"^([\w.-]+)(?:\[.*\])?==([\w.]+)", re.MULTILINE)
EXAMPLE = re.compile(r"```python\n(from punctual_client import.*?)```", re.DOTALL)
INSTALL_SECONDS = 150

Ended = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def installed() -> Iterator[Path]:
    """The directory of programs of a new environment with the client in it, and no other way to the checkout.

    With what is pinned, for building, too: what is released tomorrow changes no test.
    """
    pins = PIN.findall((ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8"))
    with TemporaryDirectory(prefix="punctual-installed-") as folder:
        constraints = Path(folder) / "pins.txt"
        for words in (["-m", "venv", folder], ["-m", "pip", "install", "--quiet", str(ROOT)]):
            python = sys.executable if words[1] == "venv" else f"{folder}/bin/python"
            constraints.write_text("".join(f"{name}=={version}\n" for name, version in pins), encoding="utf-8")
            ended = run([python, *words], {"PIP_CONSTRAINT": str(constraints)}, seconds=INSTALL_SECONDS)
            assert ended.returncode == 0, ended.stderr
        yield Path(folder) / "bin"


def run(words: list[str], environment: Mapping[str, str] | None = None, *, seconds: float = 60) -> Ended:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PUNCTUAL_", "PYTHON"))}
    given = {**inherited, **(environment or {})}
    return subprocess.run(words, cwd=ROOT, env=given, capture_output=True, text=True, timeout=seconds, check=False)


def test_the_command_comes_without_the_server(installed: Path) -> None:
    helped = run([f"{installed}/punctual", "--help"])
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "Submit programs to Punctual" in helped.stdout
    assert run([f"{installed}/punctual", "--version"]).stdout == f"punctual {VERSION}\n"
    for module in ("django", "celery", "jobs", "workers", "scheduler_project"):
        absent = run([f"{installed}/python", "-P", "-c", f"import punctual_client, {module}"])
        assert f"No module named '{module}'" in absent.stderr


def test_readme_example_runs_with_the_installed_packages(installed: Path, stack: Stack) -> None:
    found = EXAMPLE.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    server = {"PUNCTUAL_URL": stack.url, "PUNCTUAL_TOKEN": stack.token}
    ended = run([f"{installed}/python", "-P", "-c", found[1]], server)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("succeeded ")
    listed = run([f"{installed}/punctual", "jobs", "--search", "sales_report"], server)
    assert "sales_report" in listed.stdout


def test_installing_leaves_nothing_in_the_checkout(installed: Path) -> None:
    assert installed.is_dir()
    assert [name for name in ("build", "dist", "punctual.egg-info") if (ROOT / name).exists()] == []
