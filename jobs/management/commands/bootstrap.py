"""Makes a new or an old installation ready to serve: schema, bucket, administrator, API token.

Running it again changes nothing but what differs, so it may run before every start.
"""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser
from collections.abc import Callable

from django.contrib.auth.models import User
from django.core.checks import Tags
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, connection
from django.db.migrations.executor import MigrationExecutor
from psycopg.errors import LockNotAvailable

from jobs import storage
from jobs.errors import StorageUnavailable
from jobs.models import ApiToken
from jobs.services.tokens import digest_of, store_token

WAIT_SECONDS = 30.0
RETRY_SECONDS = 0.2
# For so long a migration is tried that others keep from a lock, with pauses for those who wait behind it.
MIGRATE_SECONDS = 300.0
RETRY_LOCK_SECONDS = 1.0
TOKEN_NAME = "bootstrap"  # noqa: S105 - a name
MIN_TOKEN_LENGTH = 32


class Command(BaseCommand):
    # The others load every address of the web server, which doubles the time that this takes.
    requires_system_checks = (Tags.security,)
    help = "Migrates, creates the bucket, the administrator and the API token; may be repeated."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--admin-user", required=True, metavar="NAME")

    def handle(self, *args: object, **options: object) -> None:
        self._wait("database", connection.ensure_connection, OperationalError)
        self._migrate()

        created = self._wait("object store", storage.create_bucket, StorageUnavailable)
        self._say(f"Object store: bucket {'created' if created else 'exists'}.")

        admin = self._administrator(str(options["admin_user"]))
        self._token(admin)

    def _migrate(self) -> None:
        executor = MigrationExecutor(connection)
        pending = executor.migration_plan(executor.loader.graph.leaf_nodes())
        if pending:
            self._apply()
        self._say(f"Database: {len(pending)} migrations applied." if pending else "Database: up to date.")

    def _apply(self) -> None:
        """Each migration gives up when it cannot have a lock soon, and may be repeated: so it holds up nobody."""
        deadline = time.monotonic() + MIGRATE_SECONDS
        while True:
            try:
                call_command("migrate", interactive=False, verbosity=0)
            except OperationalError as error:
                if not isinstance(error.__cause__, LockNotAvailable):
                    raise
                if time.monotonic() > deadline:
                    raise CommandError(f"A table was in use for {MIGRATE_SECONDS:g} seconds: {error}") from error
                self._say("Database: a table is in use; trying again.")
                time.sleep(RETRY_LOCK_SECONDS)
            else:
                return

    def _administrator(self, name: str) -> User:
        password = os.environ.get("PUNCTUAL_ADMIN_PASSWORD")
        admin = User.objects.filter(username=name).first()
        if admin is None:
            if not password:
                raise CommandError("PUNCTUAL_ADMIN_PASSWORD is not set; set it to create the administrator.")
            admin = User.objects.create_superuser(name, password=password)
            self._say(f"Administrator: {name} created.")
            return admin
        changed = not (admin.is_staff and admin.is_superuser and admin.is_active)
        admin.is_staff = admin.is_superuser = admin.is_active = True
        if password and not admin.check_password(password):
            admin.set_password(password)
            changed = True
        if changed:
            admin.save()
        self._say(f"Administrator: {name} {'updated' if changed else 'exists'}.")
        return admin

    def _token(self, owner: User) -> None:
        secret = os.environ.get("PUNCTUAL_API_TOKEN")
        if not secret:
            self._say("API token: none asked for (PUNCTUAL_API_TOKEN is not set).")
            return
        if len(secret) < MIN_TOKEN_LENGTH:
            raise CommandError(
                f"PUNCTUAL_API_TOKEN is too short to be safe; use at least {MIN_TOKEN_LENGTH} characters."
            )
        known = ApiToken.objects.filter(digest=digest_of(secret), owner=owner).first()
        if known is not None:
            # What somebody revoked must not come back to life with the next start.
            revoked = "revoked, and stays so; set another PUNCTUAL_API_TOKEN."
            self._say(f"API token: {'exists.' if known.revoked_at is None else revoked}")
            return
        # The former one is no longer anybody's: a rotated secret must stop working.
        replaced, _ = ApiToken.objects.filter(owner=owner, name=TOKEN_NAME).delete()
        store_token(owner=owner, name=TOKEN_NAME, secret=secret)
        self._say(f"API token: {'replaced' if replaced else 'created'}.")

    def _wait(self, what: str, ask: Callable[[], bool | None], refused: type[Exception]) -> bool:
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                return bool(ask())
            except refused as error:
                if time.monotonic() > deadline:
                    raise CommandError(f"The {what} did not answer within {WAIT_SECONDS:g} seconds: {error}") from error
                time.sleep(RETRY_SECONDS)

    def _say(self, line: str) -> None:
        self.stdout.write(line)
