"""Prepares an installation: schema, bucket, administrator, API token. Idempotent: it may run before every start."""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser
from collections.abc import Callable

from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.checks import Tags
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, connection, transaction
from django.db.migrations.executor import MigrationExecutor
from psycopg.errors import LockNotAvailable

from jobs.access.password_marks import carry_marks, compute_mark, has_current_mark
from jobs.access.tokens import compute_digest, store_token
from jobs.domain.errors import StorageUnavailable
from jobs.models import ApiToken
from jobs.storage import s3

SERVICE_TIMEOUT_SECONDS = 30.0
RETRY_SECONDS = 0.2
# A migration that cannot get a lock is retried this long, with pauses that let waiting sessions proceed.
MIGRATE_TIMEOUT_SECONDS = 300.0
LOCK_RETRY_SECONDS = 1.0
TOKEN_NAME = "bootstrap"  # noqa: S105 - a name
MIN_TOKEN_LENGTH = 32


class Command(BaseCommand):
    # The other checks load all URLs of the web server, which doubles the duration.
    requires_system_checks = (Tags.security,)
    help = "Migrate, and create the bucket, the administrator and the API token; idempotent."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--admin-user", required=True, metavar="NAME")

    def handle(self, *args: object, **options: object) -> None:
        self._wait_for("database", connection.ensure_connection, OperationalError)
        self._migrate()

        created = self._wait_for("object store", s3.create_bucket, StorageUnavailable)
        self._write(f"Object store: bucket {'created' if created else 'exists'}.")

        password = os.environ.get("PUNCTUAL_ADMIN_PASSWORD", "")
        with transaction.atomic():
            admin = self._ensure_administrator(str(options["admin_user"]), password)
        self._ensure_token(admin, has_password=bool(password))

    def _migrate(self) -> None:
        executor = MigrationExecutor(connection)
        pending = executor.migration_plan(executor.loader.graph.leaf_nodes())
        if pending:
            self._apply()
        self._write(f"Database: {len(pending)} migrations applied." if pending else "Database: up to date.")

    def _apply(self) -> None:
        """Migrate; on a lock timeout retry instead of blocking other sessions."""
        deadline = time.monotonic() + MIGRATE_TIMEOUT_SECONDS
        while True:
            try:
                call_command("migrate", interactive=False, verbosity=0)
            except OperationalError as error:
                if not isinstance(error.__cause__, LockNotAvailable):
                    raise
                if time.monotonic() > deadline:
                    raise CommandError(
                        f"A table was in use for {MIGRATE_TIMEOUT_SECONDS:g} seconds: {error}"
                    ) from error
                self._write("Database: a table is in use; trying again.")
                time.sleep(LOCK_RETRY_SECONDS)
            else:
                return

    def _ensure_administrator(self, name: str, password: str) -> User:
        admin = User.objects.select_for_update(no_key=True).filter(username=name).first()
        if admin is None:
            if not password:
                raise CommandError("PUNCTUAL_ADMIN_PASSWORD is not set; set it to create the administrator.")
            _check_password(password, User(username=name))
            admin = User.objects.create_superuser(name, password=password)
            self._write(f"Administrator: {name} created.")
            return admin
        changed = not (admin.is_staff and admin.is_superuser and admin.is_active)
        admin.is_staff = admin.is_superuser = admin.is_active = True
        if password and not _is_current_password(password, admin):
            _check_password(password, admin)
            admin.set_password(password)
            changed = True
        if changed:
            admin.save()
        self._write(f"Administrator: {name} {'updated' if changed else 'exists'}.")
        return admin

    def _ensure_token(self, owner: User, *, has_password: bool) -> None:
        """Create, renew or replace the token. `has_password`: the password comes with it."""
        secret = os.environ.get("PUNCTUAL_API_TOKEN")
        if not secret:
            self._write("API token: not created (PUNCTUAL_API_TOKEN is not set).")
            return
        if len(secret) < MIN_TOKEN_LENGTH:
            raise CommandError(
                f"PUNCTUAL_API_TOKEN is too short to be safe; use at least {MIN_TOKEN_LENGTH} characters."
            )
        known = ApiToken.objects.select_related("owner").filter(digest=compute_digest(secret), owner=owner).first()
        if known is not None:
            self._write(f"API token: {self._renew(known, has_password=has_password)}")
            return
        # A rotated secret must stop working.
        replaced, _ = ApiToken.objects.filter(owner=owner, name=TOKEN_NAME).delete()
        store_token(owner=owner, name=TOKEN_NAME, secret=secret)
        self._write(f"API token: {'replaced' if replaced else 'created'}.")

    def _renew(self, known: ApiToken, *, has_password: bool) -> str:
        # A revoked token must not work again after the next start.
        if known.revoked_at is not None:
            return "revoked; set another PUNCTUAL_API_TOKEN."
        if has_current_mark(known):
            return "exists."
        if not has_password:
            return "ended when the password of its owner was changed; set another PUNCTUAL_API_TOKEN."
        ApiToken.objects.filter(pk=known.pk).update(password_mark=compute_mark(known.owner.password))
        return "exists."

    def _wait_for(self, service: str, call: Callable[[], bool | None], refused: type[Exception]) -> bool:
        deadline = time.monotonic() + SERVICE_TIMEOUT_SECONDS
        while True:
            try:
                return bool(call())
            except refused as error:
                if time.monotonic() > deadline:
                    raise CommandError(
                        f"The {service} did not answer within {SERVICE_TIMEOUT_SECONDS:g} seconds: {error}"
                    ) from error
                time.sleep(RETRY_SECONDS)

    def _write(self, line: str) -> None:
        self.stdout.write(line)


def _is_current_password(password: str, user: User) -> bool:
    """Check the password of a locked user.

    If Django rehashes it, carry over the marks, so that tokens stay valid.
    """
    former = user.password
    is_current = user.check_password(password)
    if user.password != former:
        carry_marks(user, former=former)
    return is_current


def _check_password(password: str, user: User) -> None:
    """Apply the password rules, which Django itself applies only in forms."""
    try:
        validate_password(password, user)
    except ValidationError as error:
        reasons = " ".join(error.messages)
        raise CommandError(f"PUNCTUAL_ADMIN_PASSWORD is refused: {reasons} Set another one.") from error
