"""Prune history every minute instead of every ten, unless an operator has set another interval."""

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

TASK = "jobs.prune_history"


def set_interval(apps: StateApps, *, now: int, then: int, expire_seconds: int) -> None:
    intervals = apps.get_model("django_celery_beat", "IntervalSchedule").objects
    tasks = apps.get_model("django_celery_beat", "PeriodicTask").objects
    unchanged = tasks.filter(task=TASK, interval__every=now, interval__period="minutes")
    if unchanged.exists():
        interval = intervals.filter(every=then, period="minutes").first()
        interval = interval or intervals.create(every=then, period="minutes")
        unchanged.update(interval=interval, expire_seconds=expire_seconds)


def prune_each_minute(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    set_interval(apps, now=10, then=1, expire_seconds=60)


def prune_every_ten_minutes(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    set_interval(apps, now=1, then=10, expire_seconds=600)


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0006_drop_state_indexes"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
    ]

    operations = [
        migrations.AddField(
            model_name="retentionmark",
            name="round_ended_at",
            field=models.DateTimeField(help_text="When a round last found nothing more to delete.", null=True),
        ),
        migrations.RunPython(prune_each_minute, prune_every_ten_minutes),
    ]
