"""The console survives a closed standard output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
from pathlib import Path
import sys
from scheduler_project.localstack.console import Console
console = Console()
for number in range(1000):
    console.print(f"line {number}")
Path(sys.argv[1]).write_text("continued")
"""


def test_closed_output_does_not_end_the_command(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "seen")],
        cwd=ROOT,
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "seen").read_text() == "continued"
