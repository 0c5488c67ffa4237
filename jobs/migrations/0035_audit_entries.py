"""Who changed what: entries that nothing rewrites, and that only retention deletes."""

import django.db.models.functions.datetime
from django.db import migrations, models

import jobs.models.ids

APPEND_ONLY = """
CREATE FUNCTION punctual_keep_audit_entry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('punctual.prunes_audit', true) = 'on' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'An entry of the audit is neither changed nor deleted.' USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER audit_entry_kept BEFORE UPDATE OR DELETE ON jobs_auditentry
   FOR EACH ROW EXECUTE FUNCTION punctual_keep_audit_entry();
"""
APPEND_ONLY_BEFORE = """
DROP TRIGGER audit_entry_kept ON jobs_auditentry;
DROP FUNCTION punctual_keep_audit_entry();
"""


class Migration(migrations.Migration):
    dependencies = [("jobs", "0034_token_scopes")]

    operations = [
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=jobs.models.ids.new_id, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("actor_id", models.BigIntegerField(null=True)),
                ("actor_name", models.CharField(help_text="As the user was called then.", max_length=150)),
                ("token_id", models.UUIDField(help_text="None: a session, or no request at all.", null=True)),
                ("token_name", models.CharField(default="", max_length=100)),
                (
                    "via",
                    models.CharField(
                        choices=[("api", "Api"), ("cli", "Cli"), ("admin", "Admin"), ("system", "System")],
                        max_length=16,
                    ),
                ),
                ("address", models.GenericIPAddressField(null=True)),
                ("action", models.CharField(max_length=63)),
                ("object_type", models.CharField(max_length=63)),
                ("object_id", models.CharField(max_length=63)),
                ("object_name", models.CharField(max_length=200)),
                (
                    "owner_id",
                    models.BigIntegerField(
                        help_text="Whose it was, and so who may read of it; the actor, if it was nobody's.", null=True
                    ),
                ),
                ("before", models.JSONField(default=dict)),
                ("after", models.JSONField(default=dict)),
            ],
            options={
                "verbose_name": "change",
                "indexes": [
                    models.Index(fields=["owner_id", "-id"], name="audit_by_owner"),
                    models.Index(fields=["actor_name", "-id"], name="audit_by_actor"),
                    models.Index(fields=["object_id", "-id"], name="audit_by_object"),
                    models.Index(fields=["object_type", "-id"], name="audit_by_type"),
                    models.Index(fields=["action", "-id"], name="audit_by_action"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(via__in=["api", "cli", "admin", "system"]), name="audit_entry_via_known"
                    )
                ],
            },
        ),
        migrations.RunSQL(APPEND_ONLY, APPEND_ONLY_BEFORE),
    ]
