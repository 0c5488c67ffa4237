"""Reseals every secret with the first of PUNCTUAL_SECRETS_KEYS, so that others can be removed."""

from __future__ import annotations

from django.core.management.base import BaseCommand, CommandError

from jobs.access.secrets import reseal_secrets
from jobs.domain.errors import SecretsKeysNotConfigured
from jobs.notifications.webhooks.subscriptions import reseal_webhooks


class Command(BaseCommand):
    help = "Reseal every secret with the first of PUNCTUAL_SECRETS_KEYS; exit code 1 if one could not be opened."

    def handle(self, *args: object, **options: object) -> None:
        resealed = unreadable = 0
        for reseal in (reseal_secrets, reseal_webhooks):
            last = None
            while True:
                try:
                    page = reseal(after=last)
                except SecretsKeysNotConfigured as error:
                    raise CommandError(str(error)) from None
                if page.last_id is None:
                    break
                resealed, last = resealed + page.resealed, page.last_id
                unreadable += len(page.unreadable)
                for problem in page.unreadable:
                    self.stderr.write(problem)
        self.stdout.write(f"{resealed} secret{'' if resealed == 1 else 's'} resealed.")
        if unreadable:
            raise CommandError(f"{unreadable} could not be opened and are unchanged.")
