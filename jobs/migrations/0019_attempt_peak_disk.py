"""How much space the files of a run took at most."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0018_token_pool")]

    operations = [
        migrations.AddField(model_name="attempt", name="peak_disk_bytes", field=models.BigIntegerField(null=True)),
    ]
