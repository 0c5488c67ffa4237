"""Runs requested cases as an ordinary user."""

import os
import sys

from tests.integration.workers.sandbox.guarded_cases import CASES
from tests.support.worker_process import serve
from workers.sandbox.host import detect_host
from workers.sandbox.sandbox import Sandbox


def main() -> int:
    host = detect_host()
    if os.getuid() == 0 or host.users is not None:
        sys.stderr.write("this is to be run as an ordinary user")
        return 1
    cases = {case.__name__: case for case in CASES}
    sandbox = Sandbox(host)
    serve(lambda name: cases[name](sandbox))
    sandbox.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
