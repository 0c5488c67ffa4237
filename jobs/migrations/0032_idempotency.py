"""Answers that are kept for requests that are sent again. Whose they are is tied to users by 0040, apart."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

import jobs.models.ids


class Migration(migrations.Migration):
    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("jobs", "0031_log_storage"),
    ]

    operations = [
        migrations.CreateModel(
            name="StoredAnswer",
            fields=[
                ("id", models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ("key", models.CharField(help_text="The request's Idempotency-Key.", max_length=255)),
                ("route", models.CharField(help_text="Its method and path.", max_length=255)),
                ("body_sha256", models.CharField(max_length=64)),
                ("status", models.PositiveSmallIntegerField()),
                ("location", models.CharField(blank=True, default="", max_length=255)),
                ("body", models.TextField()),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ("expires_at", models.DateTimeField()),
                ("owner", models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL)),
            ],
            options={
                "indexes": [models.Index(fields=["expires_at"], name="stored_answer_over")],
                "constraints": [models.UniqueConstraint(fields=("owner", "key"), name="stored_answer_once")],
            },
        ),
    ]
