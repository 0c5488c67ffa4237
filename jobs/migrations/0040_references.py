"""Ties answers that are kept, webhooks, deliveries and members of teams to what they are of.

Processes of a release that does not know them delete users, jobs and executions: then these go along, by the database.
Each tie locks the table that it leads to for a moment, so each is made by itself, first unchecked, and gives up soon if
somebody else has the table: those who write wait behind it. Each statement may be repeated.
"""

from dataclasses import dataclass

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

BOUNDED = "SET LOCAL lock_timeout = '2s'; "


@dataclass(frozen=True)
class Tie:
    name: str
    table: str
    column: str
    to: str
    on_delete: str = "CASCADE"

    @property
    def operations(self):  # type: ignore[no-untyped-def]
        drop = f"{BOUNDED}ALTER TABLE {self.table} DROP CONSTRAINT IF EXISTS {self.name}"
        add = (
            f"{drop}, ADD CONSTRAINT {self.name} FOREIGN KEY ({self.column}) REFERENCES {self.to} (id)"
            f" ON DELETE {self.on_delete} DEFERRABLE INITIALLY DEFERRED NOT VALID"
        )
        validate = f"{BOUNDED}ALTER TABLE {self.table} VALIDATE CONSTRAINT {self.name}"
        return [migrations.RunSQL(add, drop), migrations.RunSQL(validate, migrations.RunSQL.noop)]


TIES = [
    Tie("stored_answer_has_owner", "jobs_storedanswer", "owner_id", "auth_user"),
    # Whoever has webhooks is not deleted.
    Tie("webhook_has_owner", "jobs_webhook", "owner_id", "auth_user", "NO ACTION"),
    Tie("webhook_has_job", "jobs_webhook", "job_id", "jobs_job"),
    Tie("delivery_has_webhook", "jobs_webhookdelivery", "webhook_id", "jobs_webhook"),
    Tie("member_is_user", "jobs_membership", "user_id", "auth_user"),
    Tie("delivery_has_execution", "jobs_webhookdelivery", "execution_id", "jobs_execution"),
]


def tied(to: str, **fields):  # type: ignore[no-untyped-def]
    return models.ForeignKey(to, **{"db_index": False, "on_delete": django.db.models.deletion.CASCADE, **fields})


class Migration(migrations.Migration):
    atomic = False
    dependencies = [migrations.swappable_dependency(settings.AUTH_USER_MODEL), ("jobs", "0039_teams")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[operation for tie in TIES for operation in tie.operations],
            state_operations=[
                migrations.AlterField("storedanswer", "owner", tied(settings.AUTH_USER_MODEL, related_name="+")),
                migrations.AlterField(
                    "webhook",
                    "owner",
                    tied(
                        settings.AUTH_USER_MODEL,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="webhooks",
                    ),
                ),
                migrations.AlterField(
                    "webhook", "job", tied("jobs.job", null=True, help_text="Only of this job; empty: of all.")
                ),
                migrations.AlterField(
                    "membership", "user", tied(settings.AUTH_USER_MODEL, db_index=True, related_name="memberships")
                ),
                migrations.AlterField("webhookdelivery", "webhook", tied("jobs.webhook", related_name="deliveries")),
                migrations.AlterField(
                    "webhookdelivery", "execution", tied("jobs.execution", null=True, help_text="Empty: a test.")
                ),
            ],
        ),
    ]
