"""The system task that fills the due window from Postgres."""

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps


def create_refill(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    interval, _ = apps.get_model("django_celery_beat", "IntervalSchedule").objects.get_or_create(every=1, period="minutes")
    apps.get_model("django_celery_beat", "PeriodicTask").objects.get_or_create(
        name="Refill the due window",
        # One that waited for a minute is followed by the next: no pile of them after the workers were away.
        defaults={"task": "jobs.refill_due_window", "interval": interval, "expire_seconds": 60},
    )


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0005_scheduling"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
    ]

    operations = [migrations.RunPython(create_refill, migrations.RunPython.noop)]
