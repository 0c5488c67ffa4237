"""Workers that speak over HTTP, and tokens that are good for that and nothing else."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("jobs", "0016_suspect_workers")]

    operations = [
        migrations.AddField(
            model_name="apitoken",
            name="scope",
            field=models.CharField(
                choices=[("all", "All"), ("worker", "Worker")],
                default="all",
                help_text="Worker: for `./punctual worker`; it reads nothing and runs what is placed on it.",
                max_length=16,
            ),
        ),
        migrations.AddConstraint(
            model_name="apitoken",
            constraint=models.CheckConstraint(condition=Q(scope__in=["all", "worker"]), name="api_token_scope_known"),
        ),
        migrations.AddField(
            model_name="worker",
            name="transport",
            field=models.CharField(
                choices=[("celery", "celery"), ("rest", "rest")],
                db_default="celery",
                default="celery",
                help_text="How it hears of its work: from its Celery queue, or by asking over HTTP.",
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="worker",
            name="token",
            field=models.ForeignKey(
                help_text="What it registered with over HTTP: only that token may speak for it.",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="workers",
                to="jobs.apitoken",
            ),
        ),
        migrations.AddConstraint(
            model_name="worker",
            constraint=models.CheckConstraint(
                condition=Q(transport__in=["celery", "rest"]), name="worker_transport_known"
            ),
        ),
    ]
