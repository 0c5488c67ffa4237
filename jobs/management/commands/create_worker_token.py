"""Creates a token for a worker on another machine and prints it once."""

from __future__ import annotations

from argparse import ArgumentParser

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from jobs.access.tokens import (
    check_name,
    check_worker_options,
    compute_expiry,
    generate_secret,
    record_creation,
    store_token,
)
from jobs.domain import limits
from jobs.domain.errors import InvalidInput
from jobs.models import TokenScope
from jobs.models.visibility import is_operator


class Command(BaseCommand):
    help = "Create a token for `./punctual worker` and print it; it is good for nothing else."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--owner", required=True, metavar="USER", help="Owner of the token, such as the administrator."
        )
        parser.add_argument("--name", default="worker", help="Name in the list of tokens; default: worker.")
        parser.add_argument("--pool", default="", help="Pool that its workers may join.")
        parser.add_argument(
            "--any-pool",
            action="store_true",
            help="Instead of --pool: its workers may join any pool, and receive runs and secrets of all owners.",
        )
        parser.add_argument(
            "--max-workers",
            type=int,
            default=1,
            metavar="N",
            help="Workers that may use it at the same time; default: 1.",
        )
        parser.add_argument(
            "--days", type=int, default=None, help="Days until it expires; default: PUNCTUAL_WORKER_TOKEN_DAYS, 365."
        )
        parser.add_argument("--never-expires", action="store_true", help="Instead of --days: good until revoked.")

    def handle(
        self,
        *args: object,
        owner: str,
        name: str,
        pool: str,
        any_pool: bool,
        max_workers: int,
        days: int | None,
        never_expires: bool,
        **options: object,
    ) -> None:
        user = User.objects.filter(username=owner).first()
        if user is None:
            raise CommandError(f"There is no user called {owner}.")
        if not is_operator(user):
            raise CommandError(f"{owner} is not staff: a worker sees what others run. Name a user who is.")
        if days is not None and (never_expires or not 0 < days <= limits.MAX_TOKEN_DAYS):
            raise CommandError(f"--days must be between 1 and {limits.MAX_TOKEN_DAYS}, and without --never-expires.")
        if bool(pool) == any_pool:
            raise CommandError("Give --pool NAME, or --any-pool for workers that may receive the runs of all owners.")
        try:
            check_name(name)
            check_worker_options(scope=TokenScope.WORKER, pool=pool, any_pool=any_pool, max_workers=max_workers)
        except InvalidInput as error:
            raise CommandError(f"{error.field}: {error.message}") from None
        secret = generate_secret()
        with transaction.atomic():
            token = store_token(
                owner=user,
                name=name[:100],
                secret=secret,
                expires_at=None if never_expires else compute_expiry(TokenScope.WORKER, days),
                scope=TokenScope.WORKER,
                pool=pool[:63],
                max_workers=max_workers,
            )
            record_creation(token)
        self.stdout.write(secret)
