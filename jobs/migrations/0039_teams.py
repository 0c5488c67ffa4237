"""Teams, and the jobs that are shared with them.

No job is in a team yet: the column is added without reading the table. Members are tied to users by 0040, apart, and the
indexes are built by 0041, beside what goes on: for an empty one, too, Postgres reads the whole table.
"""

import django.core.validators
import django.db.models.deletion
import jobs.models.ids
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0038_owner_quotas'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Membership',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('user', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='Team',
            fields=[
                ('id', models.UUIDField(default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=63, unique=True, validators=[django.core.validators.RegexValidator('^[a-z0-9][a-z0-9_.-]{0,62}\\Z', "Use lower-case letters, digits, '_', '.' and '-', at most 63.")])),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('updated_at', models.DateTimeField(auto_now=True)),
                ('members', models.ManyToManyField(related_name='teams', through='jobs.Membership', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.AddField(
            model_name='membership',
            name='team',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to='jobs.team'),
        ),
        migrations.AddField(
            model_name='job',
            name='team',
            field=models.ForeignKey(db_index=False, help_text='Empty: none.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='jobs', to='jobs.team'),
        ),
        migrations.AddConstraint(
            model_name='membership',
            constraint=models.UniqueConstraint(fields=('team', 'user'), name='team_member_once'),
        ),
    ]
