"""The archive of logs: what it holds of each, what is still to be archived, and the system tasks that do it."""

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps
from django.db.models import Q

TASKS = {
    # One that waited for its interval is followed by the next: no pile of them after the workers were away.
    "jobs.archive_logs": ("Archive logs", 30, "seconds", 30),
    "jobs.prune_logs": ("Prune old logs", 10, "minutes", 600),
}


def create_log_tasks(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
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
        ("jobs", "0029_archived_usage"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
    ]

    operations = [
        migrations.AddField(
            model_name="attemptlog",
            name="archived_to",
            field=models.IntegerField(
                help_text="The last sequence that the archive holds; -1: of an empty log.", null=True
            ),
        ),
        migrations.AddField(
            model_name="attemptlog",
            name="archive_failed_at",
            field=models.DateTimeField(help_text="When it was last tried to be archived in vain.", null=True),
        ),
        migrations.RemoveConstraint(model_name="attemptlog", name="attempt_log_place_whole"),
        migrations.AddConstraint(
            model_name="attemptlog",
            constraint=models.CheckConstraint(
                condition=Q(
                    pack__isnull=True, pack_offset__isnull=True, pack_length__isnull=True, archived_to__isnull=True
                )
                | Q(pack__isnull=False, pack_offset__isnull=False, pack_length__isnull=False, archived_to__isnull=False)
                & Q(pack_offset__gte=0, pack_length__gt=0, archived_to__gte=-1),
                name="attempt_log_place_whole",
            ),
        ),
        migrations.AddIndex(
            model_name="attemptlog",
            index=models.Index(
                condition=Q(pack__isnull=True, settled_at__isnull=True),
                fields=["day", "execution_id", "attempt"],
                name="attempt_log_unarchived",
            ),
        ),
        migrations.RunPython(create_log_tasks, migrations.RunPython.noop),
    ]
