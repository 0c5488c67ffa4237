"""How many jobs an owner may have, and how many executions at once, if not as many as everybody."""

from django.conf import settings
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [migrations.swappable_dependency(settings.AUTH_USER_MODEL), ("jobs", "0037_webhooks")]

    operations = [
        migrations.AddField(
            model_name="ownerquota",
            name="jobs",
            field=models.PositiveIntegerField(
                blank=True, help_text="How many there may be that are not deleted; 0: without limit.", null=True
            ),
        ),
        migrations.AddField(
            model_name="ownerquota",
            name="concurrent_executions",
            field=models.PositiveIntegerField(
                blank=True, help_text="How many may be placed or running at once; 0: without limit.", null=True
            ),
        ),
        migrations.AddIndex(
            model_name="ownerquota",
            index=models.Index(fields=["owner"], name="quota_of_executions", condition=Q(concurrent_executions__gt=0)),
        ),
    ]
