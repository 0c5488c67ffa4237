"""The `./punctual` wrapper in a separate checkout: it installs requirements once and execs the command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from scheduler_project.localstack.layout import CHECKOUT

PACKAGES = ("punctual_cli", "scheduler_project/localstack", "tests/suite", "workers/remote/command")
SHOW = "import json, os, sys\nprint(json.dumps([__package__, sys.argv[1:], os.getcwd()]))\n"
INSTALLING = "Installing Punctual's requirements, once (about a minute) ...\n"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a checkout with the real wrapper, fake packages that print their arguments, and empty requirements."""
    root = tmp_path_factory.mktemp("wrapper") / "a check'out $HOME"
    for package in PACKAGES:
        (root / package).mkdir(parents=True)
        (root / package / "__main__.py").write_text(SHOW)
        for directory in (root / package, *(root / package).parents):
            if directory == root:
                break
            (directory / "__init__.py").touch()
    (root / "requirements").mkdir()
    shutil.copy(CHECKOUT / "punctual", root / "punctual")
    return root


@pytest.fixture(autouse=True)
def _requirements(checkout: Path) -> None:
    """Reset the requirements to installable ones before every test."""
    for name in ("embedded", "dev"):
        (checkout / "requirements" / f"{name}.txt").write_text(f"# {name}\n")


def punctual(
    directory: Path,
    *arguments: str,
    name: str = "punctual",
    cwd: Path = Path("/"),
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(directory / name), *arguments],
        cwd=cwd,
        env=environment() if env is None else env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "HOME": "/nonexistent", "PYTHONPATH": "/nonexistent", **changes}


def test_installs_once_and_runs_the_command(checkout: Path, tmp_path: Path) -> None:
    first = punctual(checkout, "jobs", "list", "two words", "*")
    assert (first.returncode, first.stderr) == (0, INSTALLING)
    assert json.loads(first.stdout) == ["punctual_cli", ["jobs", "list", "two words", "*"], "/"]

    # From another directory, through links, next to a directory named like one of our packages.
    (tmp_path / "punctual_cli").mkdir()
    (tmp_path / "punctual_cli" / "__main__.py").write_text("raise SystemExit('not this one')")
    (tmp_path / "direct").symlink_to(checkout / "punctual")
    (tmp_path / "linked").symlink_to("direct")
    linked = punctual(tmp_path, "up", "--detach", cwd=tmp_path, name="linked")
    by_path = subprocess.run(
        ["sh", "-c", "exec linked down"],
        env=environment(PATH=f"{tmp_path}:{os.environ['PATH']}"),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert json.loads(linked.stdout) == ["scheduler_project.localstack", ["up", "--detach"], str(tmp_path)]
    assert linked.stderr == ""
    assert json.loads(by_path.stdout) == ["scheduler_project.localstack", ["down"], "/"]
    assert by_path.stderr == ""


@pytest.mark.parametrize("command", ["up", "down", "stack"])
def test_stack_commands_are_passed_on(checkout: Path, command: str) -> None:
    done = punctual(checkout, command, "--x")

    assert json.loads(done.stdout) == ["scheduler_project.localstack", [command, "--x"], "/"]


def test_worker_options_are_passed_on(checkout: Path) -> None:
    done = punctual(checkout, "worker", "--url", "two words")

    assert json.loads(done.stdout) == ["workers.remote.command", ["--url", "two words"], "/"]


def test_test_command_installs_dev_requirements(checkout: Path) -> None:
    tested = punctual(checkout, "test", "-k", "x")
    assert tested.stderr == INSTALLING
    assert json.loads(tested.stdout) == ["tests.suite", ["-k", "x"], str(checkout)]

    shutil.rmtree(checkout / ".venv" / "installed")
    assert punctual(checkout, "test").stderr == INSTALLING
    assert punctual(checkout, "up").stderr == ""


def test_changed_requirements_are_installed(checkout: Path) -> None:
    punctual(checkout, "up")
    for name in ("embedded", "dev"):
        (checkout / "requirements" / f"{name}.txt").write_text(f"# {name}, changed\n")

    assert punctual(checkout, "up").stderr == INSTALLING
    assert punctual(checkout, "up").stderr == ""


def test_failed_installation_is_reported_and_retried(checkout: Path) -> None:
    for name in ("embedded", "dev"):
        (checkout / "requirements" / f"{name}.txt").write_text("no-such-package-of-ours==1.0\n")

    for _ in range(2):
        failed = punctual(checkout, "up")
        assert failed.returncode == 1
        assert failed.stdout == ""
        assert "no-such-package-of-ours" in failed.stderr
        assert "punctual: The requirements could not be installed" in failed.stderr


def test_concurrent_commands_install_once(checkout: Path) -> None:
    shutil.rmtree(checkout / ".venv", ignore_errors=True)
    commands = [
        subprocess.Popen(
            [str(checkout / "punctual"), "up"],
            cwd="/",
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    answers = [command.communicate(timeout=120) for command in commands]

    assert [command.returncode for command in commands] == [0, 0]
    assert all(json.loads(out)[1] == ["up"] for out, _ in answers)
    assert sorted(INSTALLING in errors for _, errors in answers) == [False, True]


def test_broken_environment_is_rebuilt(checkout: Path) -> None:
    punctual(checkout, "up")
    python = checkout / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nonexistent/python3")

    assert punctual(checkout, "up").returncode == 0


def test_old_python_is_reported(checkout: Path, tmp_path: Path) -> None:
    shutil.rmtree(checkout / ".venv", ignore_errors=True)
    for tool in ("sh", "dirname", "readlink", "cmp", "printf"):
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / tool).symlink_to(found)
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)

    done = punctual(checkout, "up", env={"PATH": str(tmp_path)})

    assert done.returncode == 1
    assert done.stderr.startswith("punctual: Python 3.11 or newer is needed and was not found: install it")
    assert done.stderr.count("\n") == 1
