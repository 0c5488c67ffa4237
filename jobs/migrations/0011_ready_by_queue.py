"""What waits is read queue by queue, each in order of rank."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0010_blocked_executions")]

    operations = [
        migrations.RemoveIndex(model_name="execution", name="execution_ready"),
        migrations.AddIndex(
            model_name="execution",
            index=models.Index(
                fields=["queue", "rank", "id"], name="execution_ready", condition=models.Q(("state", "ready"))
            ),
        ),
    ]
