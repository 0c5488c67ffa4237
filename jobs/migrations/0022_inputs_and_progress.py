"""Files and standard input of programs, and how far a run says it is."""

import django.db.models.deletion
from django.db import migrations, models

import jobs.models.ids


class Migration(migrations.Migration):
    dependencies = [("jobs", "0021_worker_refusal")]

    operations = [
        migrations.CreateModel(
            name="VersionInput",
            fields=[
                (
                    "id",
                    models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False),
                ),
                ("path", models.CharField(max_length=1024, null=True)),
                (
                    "artifact",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="inputs", to="jobs.artifact"
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="inputs",
                        to="jobs.jobversion",
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="versioninput",
            constraint=models.UniqueConstraint(
                fields=("version", "path"), name="version_input_path_once", nulls_distinct=False
            ),
        ),
        migrations.AddField(
            model_name="execution",
            name="progress",
            field=models.JSONField(
                help_text="What the run said last of how far it is, and of which attempt.", null=True
            ),
        ),
    ]
