"""The default queue and the system tasks."""

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

from jobs.models.ids import new_id

# Task: name, interval, and after how many seconds an unsent message expires: after an outage only one is left.
TASKS = {
    "jobs.create_partitions": ("Keep partitions ready", 1, "hours", None),
    "celery.backend_cleanup": ("Delete old results of system tasks", 1, "hours", None),
    "jobs.refill_due_window": ("Refill the due window", 1, "minutes", 60),
    "jobs.advance_backfills": ("Advance the backfills", 5, "seconds", 5),
    "jobs.prune_history": ("Prune old history", 10, "minutes", 600),
    "jobs.sweep_orphans": ("Collect orphans in the object store", 1, "hours", 3600),
    "jobs.index_logs": ("Index logs for searching", 5, "seconds", 5),
    "jobs.archive_logs": ("Archive logs", 30, "seconds", 30),
    "jobs.prune_logs": ("Prune old logs", 10, "minutes", 600),
    "jobs.check_storage": ("Check storage quotas", 10, "seconds", 10),
}


def create_default_queue(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    apps.get_model("jobs", "Queue").objects.get_or_create(name="default", defaults={"id": new_id()})


def create_system_tasks(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    intervals = apps.get_model("django_celery_beat", "IntervalSchedule").objects
    tasks = apps.get_model("django_celery_beat", "PeriodicTask").objects
    for task, (name, every, period, expire_seconds) in TASKS.items():
        # Found by the task: one that was renamed, disabled or given another interval stays as it is.
        if tasks.filter(task=task).exists():
            continue
        interval = intervals.filter(every=every, period=period).first()
        interval = interval or intervals.create(every=every, period=period)
        tasks.create(name=name, task=task, interval=interval, expire_seconds=expire_seconds)


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0002_triggers"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
    ]

    operations = [
        migrations.RunPython(create_default_queue, migrations.RunPython.noop),
        migrations.RunPython(create_system_tasks, migrations.RunPython.noop),
    ]
