"""The core promises, on each kind of sandbox; as root also once more as an ordinary user."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyseccomp
import pytest

from tests.integration.sandbox import guarded_cases as cases
from tests.integration.sandbox.conftest import SYSTEM_BWRAP, WHEEL_BWRAP, copy_of_bwrap
from workers.sandbox import Sandbox

Case = Callable[[Sandbox], None]
CHECKOUT = Path(__file__).resolve().parents[3]
ORDINARY_ID = 23456
BWRAPS = [WHEEL_BWRAP, *([SYSTEM_BWRAP] if SYSTEM_BWRAP.exists() else [])]


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.__name__)
def test_case(sandbox: Sandbox, case: Case) -> None:
    case(sandbox)


if os.geteuid() == 0:

    @pytest.fixture(scope="module", params=BWRAPS, ids=["wheel", "system"][: len(BWRAPS)])
    def as_ordinary_user(request: pytest.FixtureRequest) -> dict[str, str | None]:
        """Run every case in a process of another uid, from a copy that uid can read."""
        python = _python_for_everyone()
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            root.chmod(0o755)
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(CHECKOUT / "workers/sandbox", root / "workers/sandbox", ignore=ignored)
            for file in ("workers/guardian.py", "workers/guardian_process.py", "workers/errors.py", "jobs/errors.py"):
                (root / file).parent.mkdir(exist_ok=True)
                shutil.copy(CHECKOUT / file, root / file)
            here = root / "tests/integration/sandbox"
            shutil.copytree(Path(__file__).parent, here, ignore=ignored)
            shutil.copy(pyseccomp.__file__, root)
            bwrap = copy_of_bwrap(request.param, root)
            done = subprocess.run(
                [python, "-m", "tests.integration.sandbox.ordinary_user"],
                user=ORDINARY_ID,
                group=ORDINARY_ID,
                extra_groups=[],
                cwd=root,
                env={"PUNCTUAL_BWRAP": str(bwrap), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        assert done.returncode == 0, done.stderr
        errors: dict[str, str | None] = json.loads(done.stdout)
        return errors

    def _python_for_everyone() -> str:
        question = "import sys; sys.exit(sys.version_info < (3, 11))"
        for path in (os.path.realpath(sys.executable), "/usr/local/bin/python3", "/usr/bin/python3"):
            try:
                subprocess.run([path, "-c", question], user=ORDINARY_ID, cwd="/", env={}, check=True, timeout=20)
            except (OSError, subprocess.SubprocessError):
                continue
            return path
        pytest.skip("Only root can run the Python 3.11 of this machine, so no other user can be tried.")

    @pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.__name__)
    def test_case_as_ordinary_user(as_ordinary_user: dict[str, str | None], case: Case) -> None:
        assert as_ordinary_user[case.__name__] is None, as_ordinary_user[case.__name__]
