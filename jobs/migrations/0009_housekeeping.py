"""Retention and the collection of orphans: how far they came, and the system tasks that run them."""

import django.db.models.functions.datetime
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

TASKS = {
    # One that waited for its interval is followed by the next: no pile of them after the workers were away.
    "jobs.prune_history": ("Prune old history", 10, "minutes", 600),
    "jobs.sweep_orphans": ("Collect orphans in the object store", 1, "hours", 3600),
}


def create_housekeeping(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    intervals = apps.get_model("django_celery_beat", "IntervalSchedule").objects
    tasks = apps.get_model("django_celery_beat", "PeriodicTask").objects
    for task, (name, every, period, expire_seconds) in TASKS.items():
        # Found by the task: one that was renamed, disabled or given another interval stays as it is.
        if not tasks.filter(task=task).exists():
            interval = intervals.filter(every=every, period=period).first() or intervals.create(
                every=every, period=period
            )
            tasks.create(name=name, task=task, interval=interval, expire_seconds=expire_seconds)


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0008_calendars"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
    ]

    operations = [
        migrations.CreateModel(
            name="RetentionMark",
            fields=[
                ("id", models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                (
                    "pruned_before",
                    models.DateTimeField(
                        help_text="Instants before this one may have lost their executions and their history.",
                        null=True,
                    ),
                ),
                (
                    "cursor",
                    models.UUIDField(help_text="The last execution that the present round has looked at.", null=True),
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("id", 1)), name="retention_mark_is_one_row")
                ],
            },
        ),
        migrations.AddField(
            model_name="artifact",
            name="wanted_at",
            field=models.DateTimeField(
                db_default=django.db.models.functions.datetime.Now(),
                editable=False,
                help_text="When somebody last announced, completed or used it.",
            ),
        ),
        migrations.AddField(
            model_name="artifact",
            name="doomed_at",
            field=models.DateTimeField(
                editable=False, help_text="Since when it is being collected: its bytes may be gone already.", null=True
            ),
        ),
        migrations.AddIndex(
            model_name="artifact",
            index=models.Index(fields=["sha256"], name="artifact_by_hash"),
        ),
        migrations.AddIndex(
            model_name="artifact",
            index=models.Index(
                condition=models.Q(("doomed_at__isnull", False)), fields=["doomed_at"], name="artifact_doomed"
            ),
        ),
        migrations.AddIndex(
            model_name="scheduleversion",
            index=models.Index(
                condition=models.Q(("number__gt", 1), ("to_at__isnull", False)),
                fields=["to_at"],
                name="schedule_version_over",
            ),
        ),
        migrations.RunPython(create_housekeeping, migrations.RunPython.noop),
    ]
