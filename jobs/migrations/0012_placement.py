"""Whatever workers can count, beside cpu, memory and disk; and executions that are to run on one worker only."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Value


class Migration(migrations.Migration):
    dependencies = [("jobs", "0011_ready_by_queue")]

    operations = [
        *(
            migrations.AddField(
                model_name=name,
                name="resources",
                field=models.JSONField(default=dict, db_default=Value({}, models.JSONField())),
            )
            for name in ("jobversion", "worker")
        ),
        migrations.AddField(
            model_name="execution",
            name="pinned_worker",
            field=models.ForeignKey(
                db_index=False,
                help_text="The only worker that it may run on; empty: any.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="pinned_executions",
                to="jobs.worker",
            ),
        ),
    ]
