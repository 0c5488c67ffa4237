"""The default queue, the system tasks, and room on the pages of hot tables so that a lease renewal stays where it is."""

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

from jobs.models.ids import new_id


def create_default_queue(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    apps.get_model("jobs", "Queue").objects.get_or_create(name="default", defaults={"id": new_id()})


def create_system_tasks(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    interval, _ = apps.get_model("django_celery_beat", "IntervalSchedule").objects.get_or_create(every=1, period="hours")
    tasks = apps.get_model("django_celery_beat", "PeriodicTask").objects
    for name, task in {
        "Keep partitions ready": "jobs.create_partitions",
        "Forget old results of system tasks": "celery.backend_cleanup",
    }.items():
        tasks.get_or_create(name=name, defaults={"task": task, "interval": interval})


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0003_partitions"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
    ]

    operations = [
        migrations.RunPython(create_default_queue, migrations.RunPython.noop),
        migrations.RunPython(create_system_tasks, migrations.RunPython.noop),
        migrations.RunSQL(
            """
            ALTER TABLE jobs_worker SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
            ALTER TABLE jobs_schedule SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
            ALTER TABLE jobs_execution SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
            """,
            migrations.RunSQL.noop,
        ),
    ]
