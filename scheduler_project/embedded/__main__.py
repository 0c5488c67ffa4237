"""Where `./punctual up`, `down` and `stack` begin: Ctrl-C is quiet even while the program is still being read."""

from __future__ import annotations

import sys

try:
    from scheduler_project.embedded.commands import INTERRUPTED, main
except KeyboardInterrupt:
    sys.exit(130)

if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
