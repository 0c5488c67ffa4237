"""Makes the token that a worker on another machine joins with, and prints it: it is shown this once."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, datetime, timedelta

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from jobs.models import TokenScope
from jobs.services.tokens import new_secret, record_making, store_token


class Command(BaseCommand):
    help = "Creates a token for `./punctual worker` and prints it; it can do nothing but be a worker."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--owner", required=True, metavar="USER", help="Whose it is; the administrator's, say.")
        parser.add_argument("--name", default="worker", help="To know it by in the list of tokens.")
        parser.add_argument("--days", type=int, default=None, help="How long it is good for; default: until revoked.")

        parser.add_argument("--pool", default="", help="The only pool that it may join; default: any.")

    def handle(self, *args: object, **options: object) -> None:
        owner = User.objects.filter(username=options["owner"]).first()
        if owner is None:
            raise CommandError(f"There is no user called {options['owner']}.")
        if not owner.is_staff:
            raise CommandError(f"{owner.username} is not staff: a worker sees what others run. Name a user who is.")
        days = options["days"]
        if isinstance(days, int) and not 0 < days <= 36_500:
            raise CommandError("--days must be between 1 and 36500.")
        expires_at = datetime.now(UTC) + timedelta(days=days) if isinstance(days, int) else None
        secret = new_secret()
        with transaction.atomic():
            token = store_token(
                owner=owner,
                name=str(options["name"])[:100],
                secret=secret,
                expires_at=expires_at,
                scope=TokenScope.WORKER,
                pool=str(options["pool"])[:63],
            )
            record_making(token)
        self.stdout.write(secret)
