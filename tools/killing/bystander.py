"""A process beside the beats that does something random over and over until it is killed, or its parent is gone."""

from __future__ import annotations

import os
import random
import sys
import time

import django
from django.db import OperationalError

TURN_SECONDS = 0.1


def main() -> None:
    django.setup()
    from tools.killing.deeds import Bystander

    parent = os.getppid()
    # Another mood in every life: the same deeds over and over would meet fewer moments.
    bystander = Bystander(random.Random(f"{sys.argv[1]} {time.time_ns()}"))  # noqa: S311 - chance, not a secret
    while os.getppid() == parent:
        try:
            bystander.take_turn()
        except OperationalError as error:
            print(f"The database refused: {error}", file=sys.stderr)
        time.sleep(TURN_SECONDS)


if __name__ == "__main__":
    main()
