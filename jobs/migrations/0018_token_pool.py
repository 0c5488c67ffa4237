"""The pool that a worker's token is good for."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0017_rest_workers")]

    operations = [
        migrations.AddField(
            model_name="apitoken",
            name="pool",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Of a worker's token: the only pool that it may join. Empty: any, and with it any work.",
                max_length=63,
            ),
        ),
    ]
