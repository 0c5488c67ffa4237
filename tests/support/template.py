"""A migrated database in a directory, which test processes copy: none but the first has to initialise and migrate.

`python -m tests.support.template DIRECTORY` makes it; the suite does so before its first part.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from scheduler_project.localstack.engines.postgres import Postgres
from scheduler_project.localstack.engines.standalone import Engines


def adopt(engines: Engines, template: Path) -> None:
    """Let the engines, before their first start, begin with a copy of the template's database."""
    postgres = _postgres(engines)
    passwords = json.loads((template / "passwords.json").read_text())
    engines.postgres.engine = replace(postgres, **passwords)
    postgres.directory.mkdir(mode=0o700, parents=True)
    shutil.copytree(template / "data", postgres.data)


def make(template: Path) -> None:
    from tests.support.engines_plugin import DIRECTORY, ENGINES

    try:
        ENGINES.directory.mkdir()
        ENGINES.postgres.start()
        _migrate()
        ENGINES.postgres.stop()
        postgres = _postgres(ENGINES)
        shutil.copytree(postgres.data, template / "data")
        passwords = {"password": postgres.password, "superuser_password": postgres.superuser_password}
        (template / "passwords.json").write_text(json.dumps(passwords))
    finally:
        ENGINES.stop()
        shutil.rmtree(DIRECTORY, ignore_errors=True)


def _migrate() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scheduler_project.settings")
    import django

    django.setup()
    from django.db import connection

    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]


def _postgres(engines: Engines) -> Postgres:
    assert isinstance(engines.postgres.engine, Postgres)
    return engines.postgres.engine


if __name__ == "__main__":
    make(Path(sys.argv[1]))
