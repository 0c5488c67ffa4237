"""Runs all cases in this process and prints, as JSON, what went wrong in each; null where nothing did."""

import json
import os
import sys
import traceback

from tests.integration.sandbox.guarded_cases import CASES
from workers.sandbox import Sandbox, detect_host


def main() -> int:
    host = detect_host()
    if os.getuid() == 0 or host.drop_uid is not None:
        sys.stderr.write("this is to be run as an ordinary user")
        return 1
    sandbox = Sandbox(host)
    errors: dict[str, str | None] = {}
    for case in CASES:
        try:
            case(sandbox)
            errors[case.__name__] = None
        except Exception:  # noqa: BLE001  (whatever it is, it is that case's result)
            errors[case.__name__] = traceback.format_exc()
    sandbox.close()
    print(json.dumps(errors))
    return 0


if __name__ == "__main__":
    sys.exit(main())
