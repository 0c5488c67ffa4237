"""Runs the cases in this process, which is an ordinary user's, as they are asked for."""

import os
import sys

from tests.integration.sandbox.guarded_cases import CASES
from tests.worker_process import serve
from workers.sandbox import Sandbox, detect_host


def main() -> int:
    host = detect_host()
    if os.getuid() == 0 or host.drop_uid is not None:
        sys.stderr.write("this is to be run as an ordinary user")
        return 1
    cases = {case.__name__: case for case in CASES}
    sandbox = Sandbox(host)
    serve(lambda name: cases[name](sandbox))
    sandbox.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
