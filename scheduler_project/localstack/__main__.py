"""Entry point of `./punctual up`, `down` and `stack`; Ctrl-C is quiet even during the imports."""

from __future__ import annotations

import sys

try:
    from scheduler_project.localstack.commands.cli import INTERRUPTED_EXIT_CODE, main
except KeyboardInterrupt:
    sys.exit(130)

if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED_EXIT_CODE)
